// bench/peers/drogon: peer FORM PORT DIR.  One thread serves; a log or files have writers of their own.
//
//	memory	a map
//	log	a map, and an append-only log: one fdatasync for all writes that wait (group commit)
//	files	a map, and a file per document: temporary file, fsync, rename, fsync of the folder
//
// A write is decided, visible and answered when it is durable.  Without arguments: prints drogon's version.
#include <drogon/drogon.h>
#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

using namespace drogon;
using Callback = std::function<void(const HttpResponsePtr &)>;

struct Doc {
	unsigned long long tag;
	std::string body;
};

struct Write {
	std::string path, body, match;
	Callback callback;
};

static std::mutex lock;
static std::unordered_map<std::string, std::shared_ptr<const Doc>> docs;
static unsigned long long last;

[[noreturn]] static void fail(const char *what)
{
	perror(what);
	std::_Exit(1);
}

static std::string tag_text(unsigned long long tag)
{
	return "\"" + std::to_string(tag) + "\"";
}

// Decides and answers; what it replaces is durable already.
static void apply(Write &put)
{
	auto answer = HttpResponse::newHttpResponse();
	unsigned long long was = 0, tag = 0;
	{
		std::lock_guard<std::mutex> hold(lock);
		auto found = docs.find(put.path);
		was = found == docs.end() ? 0 : found->second->tag;
		if (put.match.empty() || (was != 0 && (put.match == "*" || put.match == tag_text(was)))) {
			tag = ++last;
			docs[put.path] = std::make_shared<const Doc>(Doc{tag, std::move(put.body)});
		}
	}
	answer->setStatusCode(tag == 0 ? k412PreconditionFailed : was == 0 ? k201Created : k204NoContent);
	if (tag != 0 || was != 0)
		answer->addHeader("ETag", tag_text(tag != 0 ? tag : was));
	if (tag != 0 && was == 0)
		answer->addHeader("Location", put.path);
	put.callback(answer);
}

static void write_all(int fd, const std::string &bytes)
{
	for (size_t at = 0; at < bytes.size();) {
		ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
		if (n == -1)
			fail("write");
		at += (size_t)n;
	}
}

class Writer {
public:
	virtual ~Writer() = default;
	void add(Write &&put)
	{
		std::lock_guard<std::mutex> hold(m);
		waiting.push_back(std::move(put));
		more.notify_one();
	}
	void run()
	{
		for (;;) {
			std::vector<Write> batch;
			{
				std::unique_lock<std::mutex> hold(m);
				more.wait(hold, [this] { return !waiting.empty(); });
				batch.swap(waiting);
			}
			commit(batch);
			for (auto &put : batch)
				apply(put);
		}
	}

private:
	virtual void commit(const std::vector<Write> &) = 0;
	std::mutex m;
	std::condition_variable more;
	std::vector<Write> waiting;
};

class Log : public Writer {
public:
	explicit Log(const std::string &dir) : fd(open((dir + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600))
	{
		if (fd == -1)
			fail("log");
	}

private:
	void commit(const std::vector<Write> &batch) override
	{
		std::string bytes;
		for (const auto &put : batch) {
			const uint32_t head[2] = {(uint32_t)put.body.size(), (uint32_t)put.path.size()};
			bytes.append((const char *)head, sizeof(head)).append(put.path).append(put.body);
		}
		write_all(fd, bytes);
		if (fdatasync(fd) == -1)
			fail("fdatasync");
	}
	int fd;
};

class Files : public Writer {
public:
	Files(const std::string &dir, int number)
	    : dir(dir), temporary(dir + "/.t" + std::to_string(number)), folder(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))
	{
		if (folder == -1)
			fail("folder");
	}

private:
	void commit(const std::vector<Write> &batch) override
	{
		for (const auto &put : batch) {
			std::string name = put.path;
			std::replace(name.begin(), name.end(), '/', '%');
			int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
			if (fd == -1)
				fail("open");
			write_all(fd, put.body);
			if (fsync(fd) == -1 || close(fd) == -1 || rename(temporary.c_str(), (dir + "/" + name).c_str()) == -1 || fsync(folder) == -1)
				fail("file");
		}
	}
	std::string dir, temporary;
	int folder;
};

static std::vector<std::unique_ptr<Writer>> writers;

static void document_get(const HttpRequestPtr &request, Callback &&callback)
{
	std::shared_ptr<const Doc> doc;
	{
		std::lock_guard<std::mutex> hold(lock);
		auto found = docs.find(request->path());
		if (found != docs.end())
			doc = found->second;
	}
	auto answer = HttpResponse::newHttpResponse();
	if (doc) {
		answer->setContentTypeCodeAndCustomString(CT_APPLICATION_OCTET_STREAM, "application/octet-stream");
		answer->addHeader("ETag", tag_text(doc->tag));
		answer->setBody(doc->body);
	} else
		answer->setStatusCode(k404NotFound);
	callback(answer);
}

static void document_put(const HttpRequestPtr &request, Callback &&callback)
{
	Write put{request->path(), std::string(request->body()), request->getHeader("if-match"), std::move(callback)};
	if (writers.empty())
		apply(put);
	else
		writers[std::hash<std::string>()(put.path) % writers.size()]->add(std::move(put));
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		std::cout << getVersion() << std::endl;
		return argc != 1;
	}
	const std::string form = argv[1], dir = argv[3];
	if (form == "log")
		writers.emplace_back(new Log(dir));
	for (int i = 0; form == "files" && i < 16; i++)
		writers.emplace_back(new Files(dir, i));
	for (auto &writer : writers)
		std::thread([&writer] { writer->run(); }).detach();
	app().registerHandlerViaRegex(
	    "/.*",
	    [](const HttpRequestPtr &request, Callback &&callback) {
		    (request->method() == drogon::Put ? document_put : document_get)(request, std::move(callback));
	    },
	    {drogon::Get, drogon::Put});
	app().addListener("127.0.0.1", (uint16_t)std::atoi(argv[2])).setThreadNum(1).setClientMaxBodySize(64 << 20).setIdleConnectionTimeout(3600);
	app().setLogLevel(trantor::Logger::kWarn).run();
}
