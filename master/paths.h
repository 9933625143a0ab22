/*
 * master/paths.h - where things are unless the configuration says otherwise.
 *
 * Runs in: master, holdfastctl.
 *
 * configure puts SYSCONFDIR, LOCALSTATEDIR and VERSION into config.h.  What
 * the server writes lies in directories of its own, because it removes and
 * renames there as an ordinary user.
 */
#ifndef MASTER_PATHS_H
#define MASTER_PATHS_H

#ifndef SYSCONFDIR
#define SYSCONFDIR	"/etc"
#endif
#ifndef LOCALSTATEDIR
#define LOCALSTATEDIR	"/var"
#endif
#ifndef VERSION
#define VERSION		"0"
#endif

#define PATH_CONF	SYSCONFDIR "/holdfast.conf"
#define PATH_DATA	LOCALSTATEDIR "/lib/holdfast"
#define PATH_SOCKET	LOCALSTATEDIR "/run/holdfast/holdfast.sock"
#define PATH_PID	LOCALSTATEDIR "/run/holdfast/holdfast.pid"
#define PATH_LOG	LOCALSTATEDIR "/log/holdfast/holdfast.log"

#endif
