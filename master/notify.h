/*
 * master/notify.h - telling a service manager how we are (sd_notify(3), by hand).
 *
 * Runs in: master.
 * Owns:    nothing; one datagram per call, never waited for.
 */
#ifndef MASTER_NOTIFY_H
#define MASTER_NOTIFY_H

/*
 * Sends "READY=1\nSTATUS=..." and the like to NOTIFY_SOCKET (a path, or @name
 * for an abstract one).  Nothing where that is not set; failures are nobody's
 * business: the service manager notices the silence.
 */
void	notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
