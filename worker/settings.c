/*
 * worker/settings.c - see worker/settings.h.
 *
 * Runs in: worker.  Pure.
 */
#include "config.h"
#include "worker/json.h"
#include "worker/settings.h"

static const char *const publics[] = { [PUBLIC_NONE] = "none", [PUBLIC_READ] = "read", [PUBLIC_WRITE] = "write" };
#define PUBLICS (sizeof(publics) / sizeof(publics[0]))

const char *
settings_public_name(unsigned v)
{
	return publics[v < PUBLICS ? v : PUBLIC_NONE];
}

/* Members of the contract that this version cannot keep: it must not promise them. */
static bool
not_yet(const struct json *j)
{
	return json_is(j, "quota_bytes") || json_is(j, "quota_documents") || json_is(j, "rate") ||
	    json_is(j, "burst") || json_is(j, "cors");
}

static bool
public_value(struct json *j, struct tenant_settings *s)
{
	unsigned	i;

	if (json_next(j) != JSON_STRING)
		return false;
	for (i = 0; i < PUBLICS; i++)
		if (json_is(j, publics[i])) {
			s->public = (uint8_t)i;
			return true;
		}
	return false;
}

bool
settings_parse(const char *body, size_t len, struct tenant_settings *s, const char **detail)
{
	struct json	j;
	enum json_token	t;
	bool		seen = false;

	*s = (struct tenant_settings){ .version = TENANT_VERSION, .public = PUBLIC_NONE };
	if (len == 0)
		return true;
	json_init(&j, body, len);
	if ((t = json_next(&j)) != JSON_OBJECT) {
		*detail = t == JSON_BAD ? j.detail : "settings are a JSON object: {\"public\":\"none\"}";
		return false;
	}
	while ((t = json_next(&j)) == JSON_NAME) {
		if (not_yet(&j)) {
			*detail = "this version does not have quota_bytes, quota_documents, rate, burst and cors: "
			    "leave them out";
			return false;
		}
		if (!json_is(&j, "public")) {
			*detail = "an unknown member: this version has \"public\" only";
			return false;
		}
		if (seen) {
			*detail = "\"public\" is there twice: give it once";
			return false;
		}
		seen = true;
		if (!public_value(&j, s)) {
			*detail = j.detail != NULL ? j.detail : "\"public\" must be \"none\", \"read\" or \"write\"";
			return false;
		}
	}
	if (t != JSON_OBJECT_END || json_next(&j) != JSON_END) {
		*detail = j.detail;
		return false;
	}
	return true;
}
