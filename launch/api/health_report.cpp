#include "launch/api/health_report.hpp"

#include <nlohmann/json.hpp>

#include "launch/base/json_text.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

Reply health_reply(int status, const Json& body) {
    return {
        .status = status, .body = json_text(body) + "\n", .retry_after_s = status == 503 ? 1 : 0};
}

void add_wait(Json& body, const std::string& waits_for) {
    if (!waits_for.empty()) body["waiting_for"] = visible(waits_for, kLineShownBytesMax);
}

Json state_json(const ServiceSnapshot& engine,
                const char* status,
                const MethodInUse& method,
                const std::string& waits_for) {
    Json body{{"status", status},
              {"method", method.name},
              {"method_changes", method.changes},
              {"running", engine.running},
              {"waiting", engine.waiting}};
    if (!engine.why.empty()) {
        const bool error = engine.state == ServiceState::Failed;
        body[error ? "error" : "lost_stages"] = visible(engine.why, kLineShownBytesMax);
    }
    add_wait(body, waits_for);
    return body;
}

}  // namespace

const char* name(ServiceState state) {
    switch (state) {
        case ServiceState::Ok:
            return "ok";
        case ServiceState::Degraded:
            return "degraded";
        case ServiceState::Recovering:
            return "recovering";
        case ServiceState::Changing:
            return "changing";
        case ServiceState::Draining:
            return "draining";
        case ServiceState::Failed:
            return "failed";
    }
    return "failed";
}

Reply loading_health(const std::string& waits_for) {
    Json body{{"status", "loading"}};
    add_wait(body, waits_for);
    return health_reply(503, body);
}

Reply health_report(const ServiceSnapshot& engine,
                    const MethodInUse& method,
                    std::chrono::steady_clock::time_point now,
                    const std::string& waits_for) {
    const bool changing = engine.state == ServiceState::Changing;  // there may be no loop
    const bool stalled =
        engine.state != ServiceState::Failed && !changing && now - engine.heartbeat > kHeartbeatMax;
    const bool well =
        engine.state == ServiceState::Ok || engine.state == ServiceState::Degraded || changing;
    return health_reply(
        well && !stalled ? 200 : 503,
        state_json(engine, stalled ? "stalled" : name(engine.state), method, waits_for));
}

Reply deep_health_report(const ServiceSnapshot& engine,
                         const MethodInUse& method,
                         bool decoded,
                         std::chrono::milliseconds took,
                         const std::string& waits_for) {
    Json body = state_json(engine, decoded ? name(engine.state) : "stuck", method, waits_for);
    body["decoded"] = decoded;
    body["decode_ms"] = took.count();
    return health_reply(decoded ? 200 : 503, body);
}

}  // namespace paceline::serve
