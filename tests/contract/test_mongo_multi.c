#define LAYOUT "multi"
#include "contract/test_mongo.c"
