/*
 * master/listen.h - the listening sockets, made and kept by the master.
 *
 * Runs in: master.
 * Owns:    every listening socket, and the name of the control socket.
 *
 * One SO_REUSEPORT socket per worker and HTTP address: a worker has a queue of
 * its own, and the queue survives it, because the master holds the socket
 * (F53).  The first one of an address is bound without SO_REUSEPORT, so that
 * nobody else's server shares the port with us unnoticed (F45).
 *
 * The control socket is bound under a temporary name, given its mode and then
 * renamed, so that under its own name it was never open to others.
 */
#ifndef MASTER_LISTEN_H
#define MASTER_LISTEN_H
#include <sys/types.h>
#include "master/conf.h"

struct listeners {
	unsigned		 nlanes;
	struct conf_addrs	 http, metrics;		/* as bound: port 0 has become a real one */
	int			 http_fd[REGION_LANES][CONF_ADDRS];
	int			 metrics_fd[CONF_ADDRS];
	int			 control_fd;
	char			 control[CONF_PATH];
	dev_t			 dev;			/* of the control socket's file: is it still ours? */
	ino_t			 ino;
};

/*
 * Binds and listens for nlanes workers.  Addresses as root where need be
 * (master/priv.h).  0; -1 with one line in err, nothing left behind.
 */
int	listen_open(struct listeners *, const struct conf *, unsigned nlanes, char *err, size_t errlen);
/* The sockets of one lane's worker; returns how many. */
unsigned listen_lane(const struct listeners *, unsigned lane, struct boot_listener *);
/* "http 127.0.0.1:7480, control /path" */
void	listen_text(const struct listeners *, char *buf, size_t len);
/* Closes everything and removes the control socket if its name is still ours. */
void	listen_close(struct listeners *);

#endif
