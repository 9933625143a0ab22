/*
 * worker/health.c - see worker/health.h.
 *
 * Runs in: worker.
 */
#include "config.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/answer.h"
#include "worker/health.h"
#include "worker/worker.h"

void
health_alive(struct worker *w, struct conn *c)
{
	static const char	body[] = "{\"status\":\"alive\"}\n";

	answer_text(w, c, "application/json", body, sizeof(body) - 1);
}

/* --- the store's state ------------------------------------------------------ */

static const char *
state_name(uint32_t state)
{
	switch (state) {
	case STORE_RECOVERING:
		return "recovering";
	case STORE_READY:
		return "ready";
	case STORE_FULL:
		return "disk full";
	case STORE_SYNC_FAILED:
		return "sync failed";
	case STORE_DAMAGED:
		return "damaged";
	default:
		return "unknown";
	}
}

/* acquire: pairs with the committer's release of state: the reason was written before. */
static uint32_t
store_state(const struct worker *w)
{
	return atomic_load_explicit(&w->region.head->state, memory_order_acquire);
}

/* A copy: the committer may be writing a new one. */
static size_t
reason(const struct worker *w, char *out, size_t size)
{
	memcpy(out, w->region.head->reason, size);
	out[size - 1] = '\0';
	return strlen(out);
}

#define REASON (sizeof(((struct region_head *)0)->reason))

void
health_reason(const struct worker *w, char out[HEALTH_REASON])
{
	_Static_assert(REASON == HEALTH_REASON, "as in the region");
	if (store_state(w) == STORE_READY)
		out[0] = '\0';
	else
		(void)reason(w, out, HEALTH_REASON);
}

void
health_ready(struct worker *w, struct conn *c)
{
	static const char	body[] = "{\"status\":\"ready\"}\n";
	uint32_t		state = store_state(w);
	char			why[REASON], detail[REASON + 64];

	if (state == STORE_READY) {
		answer_text(w, c, "application/json", body, sizeof(body) - 1);
		return;
	}
	if (reason(w, why, sizeof(why)) > 0)
		snprintf(detail, sizeof(detail), "no writes are taken: %s: %s", state_name(state), why);
	else
		snprintf(detail, sizeof(detail), "no writes are taken: %s", state_name(state));
	answer_problem_with(w, c, 503, detail, "Retry-After: 1\r\n", sizeof("Retry-After: 1\r\n") - 1);
}

/* --- figures ------------------------------------------------------------------ */

struct figure {
	unsigned	 counter;
	const char	*name;
	const char	*help;
	bool		 gauge;
};

static const struct figure of_worker[] = {
	{ CW_CONNECTIONS, "connections_total", "Connections accepted.", false },
	{ CW_OPEN, "connections_open", "Connections open.", true },
	{ CW_REQUESTS, "requests_total", "Request heads read.", false },
	{ CW_2XX, "answers_2xx_total", "Answers 2xx.", false },
	{ CW_3XX, "answers_3xx_total", "Answers 3xx.", false },
	{ CW_4XX, "answers_4xx_total", "Answers 4xx.", false },
	{ CW_5XX, "answers_5xx_total", "Answers 5xx.", false },
	{ CW_BYTES_IN, "bytes_in_total", "Bytes received.", false },
	{ CW_BYTES_OUT, "bytes_out_total", "Bytes sent.", false },
	{ CW_GETS, "reads_total", "GET and HEAD of documents.", false },
	{ CW_WRITES, "writes_total", "Writes begun.", false },
	{ CW_BUDGET_REFUSED, "budget_refused_total", "Writes refused over the input budget.", false },
	{ CW_CLOSED_FOR_ROOM, "closed_for_room_total", "Connections closed to make room for others.", false },
	{ CW_DAMAGED_READS, "damaged_reads_total", "Reads that found a damaged document.", false },
};

static const struct figure of_committer[] = {
	{ CC_BATCHES, "batches_total", "Batches committed.", false },
	{ CC_WRITES, "commits_total", "Writes committed.", false },
	{ CC_REFUSED, "refused_total", "Writes decided against (conditions, conflicts).", false },
	{ CC_SYNCS, "syncs_total", "Syncs of the log.", false },
	{ CC_SYNC_US, "sync_microseconds_total", "Time spent in syncs.", false },
	{ CC_SYNC_LAST_US, "sync_last_microseconds", "The last sync.", true },
	{ CC_BYTES_LOGGED, "logged_bytes_total", "Bytes appended to the log.", false },
	{ CC_BYTES_MOVED, "moved_bytes_total", "Bytes moved by compaction.", false },
	{ CC_CHECKPOINTS, "checkpoints_total", "Checkpoints written.", false },
	{ CC_SEGMENTS, "segments", "Log segments on disk.", true },
	{ CC_SEGMENT_BYTES, "segment_bytes", "Their size.", true },
	{ CC_LIVE_BYTES, "live_bytes", "Bytes of the log that are in use.", true },
	{ CC_DOCUMENTS, "documents", "Documents of all tenants.", true },
	{ CC_BYTES, "document_bytes", "Their bodies.", true },
	{ CC_OVERLAY_PAGES, "overlay_pages", "Tree pages in memory.", true },
	{ CC_SEQ, "seq", "Newest sequence number.", true },
	{ CC_RECOVERY_US, "recovery_microseconds", "The last recovery.", true },
	{ CC_STARTS, "committer_starts_total", "Starts of the committer.", false },
	{ CC_DAMAGED, "damaged", "Damages found in the store.", true },
	{ CC_SCRUB_PASSES, "scrub_passes_total", "Times that all live records were read again in idle time.", false },
	{ CC_SCRUB_BYTES, "scrub_bytes_total", "Bytes read for that.", false },
	{ CC_SCRUB_DAMAGED, "scrub_damaged_total", "Damages found that way.", false },
	{ CC_DISK_FREE, "disk_free_bytes", "Room left on the file system of the data directory.", true },
	{ CC_INODES_FREE, "disk_free_inodes", "Inodes left there.", true },
};
#define N(a) (sizeof(a) / sizeof((a)[0]))

static void
metric_head(FILE *f, const struct figure *g)
{
	fprintf(f, "# HELP holdfast_%s %s\n# TYPE holdfast_%s %s\n", g->name, g->help, g->name,
	    g->gauge ? "gauge" : "counter");
}

static void
print_metrics(struct worker *w, FILE *f)
{
	const struct region	*r = &w->region;
	uint32_t		 state = store_state(w);
	unsigned		 i, lane;

	for (i = 0; i < N(of_worker); i++) {
		metric_head(f, &of_worker[i]);
		for (lane = 0; lane < r->nlanes; lane++)
			fprintf(f, "holdfast_%s{worker=\"%u\"} %" PRIu64 "\n", of_worker[i].name, lane,
			    count_get(&r->counts[lane], of_worker[i].counter));
	}
	for (i = 0; i < N(of_committer); i++) {
		metric_head(f, &of_committer[i]);
		fprintf(f, "holdfast_%s %" PRIu64 "\n", of_committer[i].name,
		    count_get(&r->counts[r->nlanes], of_committer[i].counter));
	}
	fprintf(f, "# HELP holdfast_ready Writes are taken.\n# TYPE holdfast_ready gauge\nholdfast_ready %d\n",
	    state == STORE_READY);
	fprintf(f, "# HELP holdfast_input_bytes Input budget in use.\n# TYPE holdfast_input_bytes gauge\n"
	    "holdfast_input_bytes %" PRIu64 "\n", arena_reserved(&r->arena));
	fprintf(f, "# HELP holdfast_input_budget_bytes Input budget.\n# TYPE holdfast_input_budget_bytes gauge\n"
	    "holdfast_input_budget_bytes %" PRIu64 "\n", w->boot->set.input_budget);
}

static void
print_status(struct worker *w, FILE *f)
{
	const struct region	*r = &w->region;
	char			 why[REASON], quoted[6 * REASON];
	size_t			 n = reason(w, why, sizeof(why));
	uint32_t		 state = store_state(w);
	unsigned		 i;

	n = (size_t)(put_json(quoted, why, n) - quoted);
	fprintf(f, "{\"version\":\"%s\",\"state\":\"%s\",\"reason\":\"%.*s\",\"workers\":%u,"
	    "\"input_budget\":%" PRIu64 ",\"input_bytes\":%" PRIu64,
	    VERSION, state_name(state), state == STORE_READY ? 0 : (int)n, quoted, r->nlanes,
	    w->boot->set.input_budget, arena_reserved(&r->arena));
	for (i = 0; i < N(of_worker); i++)
		fprintf(f, ",\"%s\":%" PRIu64, of_worker[i].name,
		    region_count(r, (enum count_worker)of_worker[i].counter));
	for (i = 0; i < N(of_committer); i++)
		fprintf(f, ",\"%s\":%" PRIu64, of_committer[i].name,
		    count_get(&r->counts[r->nlanes], of_committer[i].counter));
	fputs("}\n", f);
}

static void
printed(struct worker *w, struct conn *c, const char *type, void (*print)(struct worker *, FILE *))
{
	char	*text = NULL;
	size_t	 n = 0;
	FILE	*f;

	if ((f = open_memstream(&text, &n)) != NULL)
		print(w, f);
	if (f == NULL || fclose(f) == EOF)
		answer_problem(w, c, 503, "the server is short of memory; try again");
	else
		answer_text(w, c, type, text, n);
	free(text);
}

void
health_status(struct worker *w, struct conn *c)
{
	printed(w, c, "application/json", print_status);
}

void
health_metrics(struct worker *w, struct conn *c)
{
	printed(w, c, "text/plain; version=0.0.4; charset=utf-8", print_metrics);
}
