#define LAYOUT "dual"
#include "contract/test_mongo.c"
