/*
 * worker/settings.h - the JSON of PUT /_tenants/NAME, contract 6.
 *
 * Runs in: worker.  Pure.
 */
#ifndef WORKER_SETTINGS_H
#define WORKER_SETTINGS_H
#include "store/read.h"

/*
 * An object; what it leaves out is the default, and so is everything where
 * there is no body.  false: *detail (static text) says what to change, 400.
 */
bool		settings_parse(const char *body, size_t len, struct tenant_settings *, const char **detail);
/* "none", "read", "write": enum tenant_public. */
const char	*settings_public_name(unsigned);

#endif
