/*
 * worker/target.h - from a request target to a name, contract 1.
 *
 * Runs in: worker.  Pure.
 *
 * Decoded once, split, then judged; nothing is normalised.
 */
#ifndef WORKER_TARGET_H
#define WORKER_TARGET_H
#include "worker/head.h"
#include "shm/submit.h"

enum target_kind {
	T_ROOT,			/* "/" */
	T_STAR,			/* "*" (OPTIONS) */
	T_RESERVED,		/* first segment starts with '_': name in path, without the first '/' */
	T_TENANT,		/* "/NAME" without a slash behind */
	T_FOLDER,		/* "/NAME/" or "/NAME/a/b/": path may be empty, has no slash at its end */
	T_DOCUMENT,		/* "/NAME/a/b" */
	T_TENANT_RESERVED,	/* "/NAME/_changes..." */
};

struct target {
	enum target_kind kind;
	bool		 tenant_ok;	/* the tenant's name follows the rule; else: like an absent one */
	const char	*tenant;	/* points into path_buf's front or the decoded buffer */
	uint32_t	 tenant_len;
	char		*path;		/* decoded path below the tenant (T_RESERVED: all) */
	uint32_t	 path_len;
	bool		 slash;		/* T_RESERVED, T_TENANT_RESERVED: had a trailing slash */
	struct slice	 query;		/* behind '?', as sent; p NULL: none */
	struct slice	 raw_path;	/* as sent, without query, without scheme and authority: for Location */
	bool		 has_token;	/* a query parameter named token: 400 */
};

/*
 * Decodes h->target into buf (TARGET_MAX bytes) and splits it.  Handles
 * origin-form, absolute-form (http and https; its authority must be valid; RFC 9112 3.2.2), "*" for OPTIONS.
 * true, or false with the refusal (400 keep, 414 keep).
 */
bool	target_parse(const struct head *, char *buf, struct target *, struct refusal *);

#endif
