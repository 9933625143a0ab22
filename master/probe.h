/*
 * master/probe.h - are requests being answered?  Asks once, at the end of the start.
 *
 * Runs in: master.
 * Owns:    the one connection to our own control socket.
 *
 * A forked worker is not yet one that serves, and a start that reports success
 * before that has lied (F58).  Nothing of the answer is interpreted but that
 * it is one.  The worker that answers may die half-way: then ask again.
 */
#ifndef MASTER_PROBE_H
#define MASTER_PROBE_H

/* Connects to the socket and asks for /_health.  The descriptor to poll for reading; -1 with errno. */
int	probe_open(const char *path);
/* It is readable: 1 answered, 0 no answer (closed; open another one). */
int	probe_read(int fd);

#endif
