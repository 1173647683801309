#include "launch/session/service/service_figures.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using namespace std::chrono_literals;

namespace {

const std::vector<LostStage> kNone;
const std::vector<LostStage> kDraft{{.name = "draft", .essential = false}};
const std::vector<LostStage> kBoth{{.name = "draft", .essential = false},
                                   {.name = "segment-1", .essential = true}};

}  // namespace

TEST_CASE("a service shows the gravest of its states, and the stages that are lost") {
    ServiceFigures figures;
    const auto state = [&](const std::vector<LostStage>& lost, bool draining, bool changing) {
        return figures.snapshot(lost, draining, changing, {}).state;
    };
    CHECK(state(kNone, false, false) == ServiceState::Ok);
    CHECK(state(kDraft, false, false) == ServiceState::Degraded);
    CHECK(state(kDraft, false, true) == ServiceState::Changing);
    CHECK(state(kBoth, false, true) == ServiceState::Recovering);
    CHECK(state(kBoth, true, true) == ServiceState::Draining);
    CHECK(figures.snapshot(kBoth, false, false, {}).why == "draft, segment-1");
}

TEST_CASE("a recovery lasts from the first loss of an essential stage until none is lost") {
    ServiceFigures figures;
    const ServiceFigures::Clock::time_point start{1h};
    const auto since = [&](const std::vector<LostStage>& lost, std::chrono::seconds at) {
        return figures.snapshot(lost, false, false, start + at).recovering_since;
    };
    CHECK(since(kDraft, 0s) == ServiceFigures::Clock::time_point{});
    CHECK(since(kBoth, 1s) == start + 1s);
    CHECK(since(kBoth, 2s) == start + 1s);
    CHECK(since(kNone, 3s) == ServiceFigures::Clock::time_point{});
    CHECK(since(kBoth, 4s) == start + 4s);
}

TEST_CASE("an answer counts once: as failed, as cancelled, or as an answer") {
    ServiceFigures figures;
    AnswerStats stats;
    stats.prompt_tokens = 5;
    figures.count(stats, {});
    figures.count(stats, Error{Errc::Cancelled, "too late"});
    stats.finish = FinishReason::Interrupted;
    figures.count(stats, {});
    figures.count(stats, Error{Errc::PeerGone, "the pipeline is lost"});
    const ServiceSnapshot shown = figures.snapshot(kNone, false, false, {});
    CHECK(shown.answers == 1);
    CHECK(shown.cancelled == 1);
    CHECK(shown.failed == 2);
    CHECK(shown.prompt_tokens == 20);
}
