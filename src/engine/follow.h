/* follow.h - the thread of a cursor: opens the store's watch, again and again if need be, and hands
 * what comes to the nodes of this process. Private to engine/. */
#ifndef MSG_ENGINE_FOLLOW_H
#define MSG_ENGINE_FOLLOW_H

/** What msg_cursor_rouse starts. Args: its msg_cursor. Returns when it was asked to stop, or when
 *  the place is gone. */
void msg_follow(void *cursor);

#endif
