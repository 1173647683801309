// HttpServer: the listener of `paceline serve`, its one I/O thread, and its end.
//
//     bind()  ->  run():  [loading] --ready()--> [serving] --signal--> [draining] --> run() returns
//
// The port is bound before the model is loaded; until ready() everything but /health and /version
// is answered with 503. SIGTERM, SIGINT, and SIGUSR1, which Slurm sends before a job's end, begin
// the drain: nothing new is taken, what runs may finish within the limit. Another one (SIGUSR1 is
// ignored then), or one while the model is loaded, has its default action: the process ends at
// once, and its stages with it.
// Threads: run() and the destructor from one; waits_for(), ready(), fail() from any.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ipc/base/result.hpp"
#include "launch/api/served_model.hpp"
#include "launch/serve/access_rules.hpp"
#include "launch/serve/server_settings.hpp"

namespace paceline::serve {

class HttpServer {
public:
    /// Errors: those of HttpListener::listen().
    [[nodiscard]] static Result<std::unique_ptr<HttpServer>> bind(const ListenPlace& place,
                                                                  AccessRules access,
                                                                  const ServerSettings& settings);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    /// "http://127.0.0.1:8080", "unix:/run/paceline.sock".
    [[nodiscard]] std::string address() const;
    /// What loading waits for, for people: GET /health shows it; empty: nothing else.
    void waits_for(const std::string& what);
    /// The model is loaded; it outlives run() and this object.
    void ready(ServedModel& model, std::chrono::milliseconds drain_limit);
    /// It cannot be loaded: run() returns.
    void fail();
    /// Until the drain is over, or fail(). No answer is open afterwards.
    void run();

private:
    class Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::serve
