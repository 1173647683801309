#include "launch/serve/serve.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fmt/core.h>
#include <mutex>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <utility>

#include "launch/base/exit_codes.hpp"
#include "launch/base/report.hpp"
#include "launch/config/methods.hpp"
#include "launch/plan/auto_choice.hpp"
#include "launch/serve/http_server.hpp"
#include "launch/serve/load_served_model.hpp"
#include "launch/serve/serve_settings.hpp"
#include "launch/serve/service_manager.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr const char* kServeCommand = "serve";
constexpr std::chrono::milliseconds kRecordPeriod{300'000};  // of a method that stays
constexpr std::chrono::milliseconds kIdleLook{100};          // at a service that is to change

std::chrono::milliseconds millis(double seconds) {
    return std::chrono::milliseconds{std::llround(seconds * 1000.0)};
}

serve::ListenPlace place_of(const ServeOptions& options) {
    return {.host = options.host,
            .port = static_cast<std::uint16_t>(options.port),
            .unix_path = options.unix_path};
}

serve::ServerSettings settings_of(const ServeOptions& options) {
    return {.keep_alive = millis(options.keep_alive_s),
            .head_timeout = millis(options.head_timeout_s),
            .body_timeout = millis(options.body_timeout_s),
            .recovery_wait = millis(options.recovery_wait_s),
            .resume = millis(options.resume_s),
            .peer_connections = static_cast<std::size_t>(options.peer_connections)};
}

/// What several machines decode with.
Status check_machines(const ServeOptions& options, const Environment& environment) {
    const Result<std::optional<StarterPlace>> place = conductor_place(options.meeting, environment);
    if (place && place.value() && !options.gpus.empty())
        return Error{Errc::BadArgument,
                     "--gpus places the stages of one machine; on several machines they are on the "
                     "`device` of each [[stage]]"};
    const bool names_stages = !options.config_file.empty() ||
                              (options.method != kAutoMethod && options.method != kPlainMethod);
    return check_meeting(options.meeting, environment, names_stages);
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

/// Loads while the server answers, then keeps the record of its method, and changes it, or looks
/// after the other machines; the model outlives the server.
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
    /// After the server's last answer.
    void wait() {
        {
            const std::lock_guard lock{mutex_};
            over_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
    /// Ends the stages.
    void unload() {
        loaded_.model.reset();
        loaded_.machines.reset();  // says goodbye to the agents
    }

private:
    void load(serve::HttpServer& server) {
        Result<serve::LoadedModel> loaded = serve::load_served_model(
            options_, environment_, log_,
            [&server](const std::string& what) { server.waits_for(what); });
        if (!loaded) {
            failure_ = loaded.error();
            return server.fail();
        }
        loaded_ = std::move(loaded).value();
        if (options_.drain_s >= 0.0) loaded_.drain_limit = millis(options_.drain_s);
        const serve::ServedModel& model = *loaded_.model;
        server.ready(*loaded_.model, loaded_.drain_limit);
        const std::string ready =
            fmt::format("model {}, method {}, context {}, {} requests", visible(model.name),
                        model.method->get().name, model.context, model.running);
        std::fprintf(stderr, "paceline serve: ready: %s\n", ready.c_str());
        serve::tell_ready(ready);
        if (loaded_.method) keep_method(*loaded_.method, *loaded_.model->service);
        if (loaded_.machines) keep_machines(*loaded_.machines, *loaded_.model->service);
    }
    /// Whether the server has ended before then.
    [[nodiscard]] bool ends_before(std::chrono::steady_clock::time_point then) {
        std::unique_lock lock{mutex_};
        return changed_.wait_until(lock, then, [this] { return over_; });
    }
    void keep_machines(serve::ServedMachines& machines, Service& service) {
        while (!ends_before(std::chrono::steady_clock::now() + serve::ServedMachines::kLook))
            machines.look(service, loaded_.open_again);
    }
    /// A look in each period until the server's end, and one then. A change that is asked for waits
    /// for a moment in which no answer is open.
    void keep_method(serve::ServedMethod& method, Service& service) {
        using Clock = std::chrono::steady_clock;
        const auto period = options_.replan_s > 0.0 ? std::max(millis(options_.replan_s), kIdleLook)
                                                    : kRecordPeriod;
        auto next_look = Clock::now() + period;
        bool last = false;
        while (!last) {
            last = ends_before(method.wants_change() ? std::min(next_look, Clock::now() + kIdleLook)
                                                     : next_look);
            if (last || Clock::now() >= next_look) {
                method.look(service);
                next_look = Clock::now() + period;
            }
            if (!last) method.change_if_idle(service);
        }
    }

    const ServeOptions& options_;
    const Environment& environment_;
    RunLog& log_;
    serve::LoadedModel loaded_;
    std::optional<Error> failure_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;  // guarded by mutex_
    std::thread thread_;
};

/// Whether no child is left, running or unreaped.
bool all_reaped() {
    return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
}

}  // namespace

int run_serve(const Command& command, ServeOptions& options, const Environment& environment) {
    if (Status s = complete_settings(command, environment.variables, options); !s)
        return report(kServeCommand, s.error());
    const auto key = environment.variables.find("PACELINE_API_KEY");
    if (key != environment.variables.end()) options.key = key->second;
    if (options.method.empty() && options.config_file.empty()) options.method = kAutoMethod;
    if (Status s = check_options(options); !s) return report(kServeCommand, s.error());
    if (Status s = check_machines(options, environment); !s)
        return report(kServeCommand, s.error());
    Result<serve::AccessRules> access =
        serve::AccessRules::make(options.unix_path.empty() ? options.host : serve::kUnixSocket,
                                 {options.key_file, options.key}, options.origins);
    if (!access) return report(kServeCommand, access.error());
    Result<RunLog> log = RunLog::open(options.log_file, options.verbose);
    if (!log) return report(kServeCommand, log.error());
    Loading loading{options, environment, log.value()};
    {
        Result<std::unique_ptr<serve::HttpServer>> bound = serve::HttpServer::bind(
            place_of(options), std::move(access).value(), settings_of(options));
        if (!bound) return report_failure(kServeCommand, bound.error());
        serve::HttpServer& server = *bound.value();
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
