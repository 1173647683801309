#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launch/api/health_report.hpp"
#include "launch/api/model_info.hpp"
#include "launch/api/routes.hpp"
#include "launch/serve/serve_metrics.hpp"

namespace paceline::serve {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

int status(const char* method, const char* target) {
    ApiResult<Route> route = find_route(method, target);
    return route ? 200 : route.error().status;
}

TEST_CASE("routes: paths with and without /v1, with queries") {
    CHECK(find_route("POST", "/v1/chat/completions").value().endpoint == Endpoint::Chat);
    CHECK(find_route("POST", "/completions?x=1").value().endpoint == Endpoint::Completions);
    CHECK(find_route("HEAD", "/health").value().is_health());
    CHECK(find_route("GET", "/v1/models/a/b%20c").value().id == "a/b c");
    CHECK(status("GET", "/v1/models/%") == 404);
    CHECK(status("GET", "/v1/models/%2") == 404);
    CHECK(status("GET", "/v1/models/%zz") == 404);
    CHECK(status("GET", "/v1/v1/models") == 404);
    CHECK(find_route("GET", "/").value().endpoint == Endpoint::Page);
    CHECK(status("POST", "/") == 405);
    CHECK(status("GET", "") == 404);
    for (const char* base : {"/v1", "/v1/", "/v1/?x=1", "/v1/#x", "/v1//"})
        CHECK_MESSAGE(status("GET", base) == 404, base);
    CHECK(status("POST", "/v1/embeddings") == 501);
}

TEST_CASE("routes: the ID of a stream, and what follows the question mark") {
    ApiResult<Route> stream = find_route("GET", "/v1/streams/chatcmpl-0a?from=5&x#y?z");
    CHECK(stream.value().endpoint == Endpoint::Stream);
    CHECK(stream.value().id == "chatcmpl-0a");
    CHECK(stream.value().query == "from=5&x");
    CHECK(find_route("GET", "/health#x").value().query.empty());
    CHECK(find_route("GET", "/health?").value().query.empty());
    CHECK(status("GET", "/v1/streams/") == 404);
    CHECK(find_route("HEAD", "/v1/streams/a").error().allow == "GET");
    CHECK(find_route("POST", "/v1/completion").value().endpoint == Endpoint::Native);
}

TEST_CASE("routes: a value of a query is that of the whole name") {
    CHECK(query_value("from=5&deep", "from") == "5");
    CHECK(query_value("from=5&deep", "deep") == "");
    CHECK(query_value("from=5&deep", "fro") == std::nullopt);
    CHECK(query_value("a=b=c&a=d", "a") == "b=c");
    CHECK(query_value("&&=&x=", "x") == "");
    CHECK(query_value("", "x") == std::nullopt);
}

TEST_CASE("routes: a wrong method is 405 with the right ones") {
    CHECK(status("GET", "/v1/chat/completions") == 405);
    CHECK(find_route("DELETE", "/v1/models").error().allow == "GET, HEAD");
    CHECK(find_route("GET", "/tokenize").error().allow == "POST");
}

TEST_CASE("health: each state, and a loop that stands still") {
    const Time now{100s};
    ServiceSnapshot engine;
    engine.heartbeat = now - 900ms;
    const auto told = [&] {
        const Reply reply = health_report(engine, {.name = "pearl"}, now);
        return std::to_string(reply.status) + " " +
               nlohmann::json::parse(reply.body)["status"].get<std::string>();
    };
    CHECK(told() == "200 ok");
    engine.waiting = 64;  // a full queue is no illness
    CHECK(told() == "200 ok");
    engine.state = ServiceState::Degraded;
    engine.why = "draft";
    CHECK(told() == "200 degraded");
    CHECK(nlohmann::json::parse(
              health_report(engine, {.name = "pearl"}, now).body)["lost_stages"] == "draft");
    engine.state = ServiceState::Recovering;
    CHECK(told() == "503 recovering");
    engine.state = ServiceState::Draining;
    CHECK(told() == "503 draining");
    engine.heartbeat = now - 1001ms;
    CHECK(told() == "503 stalled");
    engine.state = ServiceState::Changing;  // there may be no loop
    CHECK(told() == "200 changing");
    const nlohmann::json body =
        nlohmann::json::parse(health_report(engine, {.name = "fold", .changes = 2}, now).body);
    CHECK(body["method"] == "fold");
    CHECK(body["method_changes"] == 2);
    engine.state = ServiceState::Failed;
    CHECK(told() == "503 failed");
    CHECK(nlohmann::json::parse(
              health_report(engine, {.name = "pearl"}, now, "machine 'b'").body)["waiting_for"] ==
          "machine 'b'");
    CHECK(body.count("waiting_for") == 0);
    CHECK(loading_health().status == 503);
    CHECK(nlohmann::json::parse(loading_health("machine 'b'").body)["waiting_for"] ==
          "machine 'b'");
}

TEST_CASE("health: a deep report says whether a token was decoded") {
    ServiceSnapshot engine;
    const auto told = [&](bool decoded) {
        const Reply reply = deep_health_report(engine, {.name = "pearl"}, decoded, 12ms);
        const nlohmann::json body = nlohmann::json::parse(reply.body);
        CHECK(body["decoded"] == decoded);
        CHECK(body["decode_ms"] == 12);
        return std::to_string(reply.status) + " " + body["status"].get<std::string>();
    };
    CHECK(told(true) == "200 ok");
    CHECK(told(false) == "503 stuck");
    engine.state = ServiceState::Degraded;
    CHECK(told(true) == "200 degraded");
}

TEST_CASE("model name: the alias, else the file or folder without its path") {
    CHECK(model_name("alias", "/x/y.gguf") == "alias");
    CHECK(model_name("", "/x/y.Q4_1.gguf") == "y.Q4_1");
    CHECK(model_name("", "/x/folder/") == "folder");
    CHECK(model_name("", "folder-1.5B") == "folder-1.5B");
}

TEST_CASE("metrics: a histogram counts what is up to its bounds") {
    TimeHistogram times;
    times.add(0.005);
    times.add(0.02);
    times.add(1000.0);
    std::string text;
    times.print(text, "t", "help");
    CHECK(text.find("t_bucket{le=\"0.005\"} 1\n") != std::string::npos);
    CHECK(text.find("t_bucket{le=\"0.01\"} 1\n") != std::string::npos);
    CHECK(text.find("t_bucket{le=\"0.025\"} 2\n") != std::string::npos);
    CHECK(text.find("t_bucket{le=\"60\"} 2\n") != std::string::npos);
    CHECK(text.find("t_bucket{le=\"+Inf\"} 3\n") != std::string::npos);
    CHECK(text.find("t_count 3\n") != std::string::npos);
}

TEST_CASE("metrics: while the model loads the server's own are there") {
    ServeMetrics metrics;
    metrics.add_response(503);
    CHECK(metrics.text(nullptr).find("paceline_http_responses_total{code=\"503\"} 1\n") !=
          std::string::npos);
}

}  // namespace
}  // namespace paceline::serve
