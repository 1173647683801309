#include "launch/serve/serve.hpp"

#include <cerrno>
#include <cstdio>
#include <fmt/core.h>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <utility>

#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/report.hpp"
#include "launch/config/methods.hpp"
#include "launch/plan/auto_choice.hpp"
#include "launch/serve/http_server.hpp"
#include "launch/serve/load_served_model.hpp"
#include "launch/serve/service_manager.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr const char* kServeCommand = "serve";

constexpr const char* kServeFooter =
    R"(Examples:
  paceline serve
  paceline serve -m model.gguf --method pearl --requests 8 --kv-memory 2G --alias my-model
  paceline serve --host 0.0.0.0 --api-key-file keys.txt

  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
       -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": true}'

The port answers 503 while the model is loaded; GET /health says what state the server is in.
SIGTERM or Ctrl-C lets running answers finish, for at most --drain seconds, and takes no others;
exit code 0 once all stages have ended. A second signal ends the program at once. A stage that dies
is started again and its answers go on with the same text. docs/serving.md has the whole API.)";

void add_what_to_serve(Command& command, ServeOptions& options) {
    command.add_option("--config", options.config_file,
                       "pipeline of processes to decode with (configs/*.toml)");
    command
        .add_option("--method", options.method,
                    "how to decode: auto (the fastest by earlier runs here), plain, or one of "
                    "paceline run --list-methods (default: $PACELINE_METHOD, else auto)")
        .excludes("--config");
    command.add_option(
        "--draft-model", options.draft_model,
        "draft model with the target's vocabulary: a GGUF file, a Hugging Face folder or "
        "OWNER/NAME");
    add_gpus_option(command, options.gpus);
    command.add_option("--alias", options.alias,
                       "the model's name in the API (default: that of its file or folder)");
    add_requests_options(command, options.requests, options.kv_memory);
    command
        .add_option("--queue", options.queue,
                    "answers that may wait beside those; more are refused with 429")
        .check(whole_number(0, 100'000))
        .show_default();
}

void add_where_to_serve(Command& command, ServeOptions& options) {
    command
        .add_option("--host", options.host,
                    "address to listen on; one that other machines reach needs --api-key-file")
        .show_default();
    command.add_option("--port", options.port, "TCP port; 0 takes a free one, which is printed")
        .check(whole_number(0, 65'535))
        .show_default();
    command.add_option("--api-key-file", options.key_file,
                       "API keys, one a line; every request but /health must name one");
    command
        .add_option("--cors-origin", options.origins,
                    "web pages of this origin may ask, such as http://localhost:3000; may be "
                    "repeated")
        .repeated();
    command
        .add_option("--drain", options.drain_s,
                    "seconds that answers may take to finish after SIGTERM (default: drain_s of "
                    "the pipeline's [supervision], 30)")
        .check(number_between(0.0, 86'400.0));
    command
        .add_option("--keep-alive", options.keep_alive_s,
                    "seconds between two comments in a stream that has nothing else to send")
        .check(number_between(0.05, 3'600.0))
        .show_default();
    command.add_option("--log", options.log_file, "write what all stages log to FILE");
    command.add_flag("-v,--verbose", options.verbose,
                     "show the same lines on standard error, and which stage is where");
}

/// Options of other servers, with ours.
void add_foreign_options(Command& command) {
    const std::pair<const char*, const char*> known[] = {
        {"--parallel", "--requests N"},
        {"--max-num-seqs", "--requests N"},
        {"--ctx-size", "-c N"},
        {"--max-model-len", "-c N"},
        {"--served-model-name", "--alias NAME"},
        {"--api-key", "--api-key-file FILE: command lines are visible to all users"},
        {"--draft-max", "gamma in a --config file, or paceline.gamma in a request"},
        {"--speculative-config", "--method NAME, --draft-model PATH or --config FILE"}};
    for (const auto& [theirs, ours] : known) {
        std::string text = std::string{theirs} + " is another server's option; here it is " + ours;
        command.refuse_option(theirs,
                              [text = std::move(text)](const std::string&) { return text; });
    }
}

Status check_options(const ServeOptions& options) {
    if (!options.config_file.empty() && device_of(options.model).gpu)
        return Error{Errc::BadArgument, kDeviceIsInTheFile};
    const bool one_method = !options.config_file.empty() || options.method != kAutoMethod;
    if (!options.gpus.empty() && !one_method)
        return Error{Errc::BadArgument, "--gpus places stages; give --method or --config too"};
    if (!options.gpus.empty() && device_of(options.model).gpu)
        return Error{Errc::BadArgument, kGpusOrDevice};
    if (options.alias.size() > 128 ||
        options.alias.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789._:/-") != std::string::npos)
        return Error{Errc::BadArgument,
                     "--alias " + quoted_text(options.alias) +
                         " must have at most 128 of the characters A-Z a-z 0-9 . _ : / -"};
    if (!options.config_file.empty()) return {};
    if (options.method == kAutoMethod || options.method == kPlainMethod) return {};
    const Result<PipelineConfig> known = method_config(options.method);
    return known ? Status{} : known.error();
}

/// Loads while the server answers; the model outlives the server.
class Loading {
public:
    Loading(const ServeOptions& options, const Environment& environment, RunLog& log)
        : options_{options}, environment_{environment}, log_{log} {}
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;
    ~Loading() = default;

    void begin(serve::HttpServer& server) {
        thread_ = std::thread{[this, &server] { load(server); }};
    }
    void wait() {
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
    /// Ends the stages.
    void unload() { loaded_.model.reset(); }

private:
    void load(serve::HttpServer& server) {
        Result<serve::LoadedModel> loaded = serve::load_served_model(options_, environment_, log_);
        if (!loaded) {
            failure_ = loaded.error();
            return server.fail();
        }
        loaded_ = std::move(loaded).value();
        if (options_.drain_s >= 0.0)
            loaded_.drain_limit =
                std::chrono::milliseconds{static_cast<std::int64_t>(options_.drain_s * 1000.0)};
        const serve::ServedModel& model = *loaded_.model;
        server.ready(*loaded_.model, loaded_.drain_limit);
        std::fprintf(
            stderr, "paceline serve: ready: model %s, method %s, context %d, %d requests\n",
            visible(model.name).c_str(), model.method.c_str(), model.context, model.running);
        const Status told = serve::tell_service_manager(
            environment_.notify_socket,
            fmt::format("READY=1\nSTATUS={}, method {}", visible(model.name), model.method));
        if (!told) std::fprintf(stderr, "paceline serve: %s\n", told.error().what.c_str());
    }

    const ServeOptions& options_;
    const Environment& environment_;
    RunLog& log_;
    serve::LoadedModel loaded_;
    std::optional<Error> failure_;
    std::thread thread_;
};

/// Whether no child is left, running or unreaped.
bool all_reaped() {
    return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
}

}  // namespace

Command add_serve(Command& app, ServeOptions& options) {
    Command command = app.add_command(kServeCommand, "Answer over HTTP, with the API of OpenAI");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    refuse_exact_option(command);
    refuse_random_option(command);
    add_parts_option(command, options.model);
    add_what_to_serve(command, options);
    add_where_to_serve(command, options);
    add_foreign_options(command);
    command.footer(kServeFooter);
    return command;
}

int run_serve(const ServeOptions& given, const Environment& environment) {
    ServeOptions options = given;
    if (options.method.empty() && options.config_file.empty())
        options.method = environment.method.empty() ? kAutoMethod : environment.method;
    if (Status s = check_options(options); !s) return report(kServeCommand, s.error());
    Result<serve::AccessRules> access =
        serve::AccessRules::make(options.host, options.key_file, options.origins);
    if (!access) return report(kServeCommand, access.error());
    Result<RunLog> log = RunLog::open(options.log_file, options.verbose);
    if (!log) return report(kServeCommand, log.error());
    Loading loading{options, environment, log.value()};
    {
        Result<std::unique_ptr<serve::HttpServer>> bound = serve::HttpServer::bind(
            options.host, static_cast<std::uint16_t>(options.port), std::move(access).value());
        if (!bound) return report_failure(kServeCommand, bound.error());
        serve::HttpServer& server = *bound.value();
        server.set_keep_alive(
            std::chrono::milliseconds{static_cast<std::int64_t>(options.keep_alive_s * 1000.0)});
        std::fprintf(stderr, "paceline serve: listening on %s, loading the model\n",
                     server.address().c_str());
        loading.begin(server);
        server.run();
        loading.wait();
    }
    if (loading.failure()) return report(kServeCommand, *loading.failure());
    loading.unload();
    const bool reaped = all_reaped();
    std::fprintf(stderr, reaped ? "paceline serve: all stages have ended\n"
                                : "paceline serve: a stage did not end\n");
    return reaped ? kExitOk : kExitFailure;
}

}  // namespace paceline
