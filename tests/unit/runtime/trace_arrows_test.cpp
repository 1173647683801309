#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/runtime/trace_fixture.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("a batch's arrow goes from where it was formed through the segments to its commit") {
    const json trace = checked(one_batch());
    std::vector<std::string> path;
    for (const json& event : trace["traceEvents"]) {
        const std::string phase = event["ph"];
        if (phase != "s" && phase != "t" && phase != "f") continue;
        for (const json& slice : of_phase(trace, "X")) {
            const bool touched = slice["tid"] == event["tid"] && slice["ts"] == event["ts"];
            if (touched) path.push_back(slice["name"]);
        }
    }
    CHECK(path ==
          std::vector<std::string>{"batch 7", "verify 7", "verify 7", "verdict 7", "commit 7"});
    CHECK(of_phase(trace, "s").size() == 1);
    CHECK(of_phase(trace, "f").size() == 1);
    CHECK(of_phase(trace, "f")[0]["pid"] == 1);  // the conductor
}

TEST_CASE("an arrow goes from each proposal to the verdict that verified its root") {
    std::vector<ProcessTrace> all = one_batch();  // its verdict begins at 40, after the root at 39
    const auto proposal = [](std::int64_t time, Position root) {
        TraceEvent event = mark(time, TraceKind::Proposal);
        event.position = root;
        return event;
    };
    TraceEvent other_request = proposal(1010, 39);
    other_request.request = RequestId{6};
    TraceEvent other_attempt = proposal(1020, 39);
    other_attempt.attempt = Attempt{2};
    const std::vector<TraceEvent> sent{
        other_request,      other_attempt,      proposal(1030, 39),
        proposal(1040, 38), proposal(2400, 39), proposal(2530, 39)};  // after the verdict
    all.push_back({"draft", StageId{3}, Epoch{1}, sent, sent.size()});
    const json trace = checked(all);
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> arrows;
    for (const json& event : trace["traceEvents"]) {
        if (event.value("cat", "") != "proposal" || event["ph"] == "X") continue;
        CHECK(event["name"] == "proposal");
        if (event["ph"] == "s") {
            CHECK(event["pid"] == 4);  // the draft
            arrows[event["id"]].first = event["ts"];
        } else {
            CHECK(event["ph"] == "f");
            CHECK(event["pid"] == 3);  // the verifier
            arrows[event["id"]].second = event["ts"];
        }
    }
    std::set<std::pair<std::int64_t, std::int64_t>> ways;
    for (const auto& [id, way] : arrows) ways.insert(way);
    CHECK(ways == std::set<std::pair<std::int64_t, std::int64_t>>{{30, 1520}, {1400, 1520}});
    // The batch has its own arrow through the same verdict.
    const auto is_batch = [](const json& event) { return event["name"] == "batch"; };
    const std::vector<json> begins = of_phase(trace, "s");
    CHECK(std::count_if(begins.begin(), begins.end(), is_batch) == 1);
}

TEST_CASE("a proposal, its verdict and the commit may fall into one microsecond") {
    TraceEvent proposal = mark(500, TraceKind::Proposal);
    proposal.position = 39;
    const std::vector<TraceEvent> verifier{mark(500, TraceKind::Batch, 7),
                                           mark(500, TraceKind::Verdict, 7)};
    // The rows' order in the file is not that of the arrow.
    const json trace =
        checked({{"conductor", StageId{0}, Epoch{1}, {mark(500, TraceKind::Commit, 7)}, 1},
                 {"verifier", StageId{1}, Epoch{1}, verifier, 2},
                 {"draft", StageId{2}, Epoch{1}, {proposal}, 1}});
    CHECK(of_phase(trace, "s").size() == 2);
    CHECK(of_phase(trace, "t").size() == 1);
    CHECK(of_phase(trace, "f").size() == 2);
}

TEST_CASE("a batch number that comes again after a replay is another arrow") {
    std::vector<ProcessTrace> all = one_batch();
    SUBCASE("formed again, though the first never came to its end") {
        all[0].events.pop_back();
    }
    SUBCASE("used again after its commit") {}
    all[1].events.push_back(mark(8000, TraceKind::Batch, 7));
    all[1].events.push_back(job(8001, 100, "verify", 7));
    all[1].recorded = 6;
    const json trace = checked(all);
    CHECK(of_phase(trace, "s").size() == 2);
    CHECK(of_phase(trace, "f").size() == 2);
}

TEST_CASE("a batch of which only one point is left has no arrow, jobs of other kinds have none") {
    const json trace =
        checked({{"a",
                  StageId{1},
                  Epoch{1},
                  {job(10, 5, "verify", 1), job(20, 5, "draft", 2), job(30, 5, "draft", 2)},
                  3}});
    CHECK(of_phase(trace, "X").size() == 3);
    CHECK(of_phase(trace, "s").empty());
    CHECK(of_phase(trace, "f").empty());
}

TEST_CASE("a trace of many full rings is a file that loads, with an arrow for every proposal") {
    constexpr std::uint16_t kStages = 34;
    constexpr std::uint32_t kRounds = 4'000;
    std::vector<ProcessTrace> all;
    for (std::uint16_t stage = 0; stage < kStages; ++stage) {
        all.push_back({"stage-" + std::to_string(stage), StageId{stage}, Epoch{1}, {}, 0});
        std::vector<TraceEvent>& events = all.back().events;
        for (std::uint32_t round = 0; round < kRounds; ++round) {
            const auto at = std::int64_t{1'000'000} + round * std::int64_t{100'000};
            const auto root = static_cast<Position>(round);
            if (stage == kStages - 1) {
                events.push_back(mark(at, TraceKind::Proposal));
                events.back().position = root;
                events.push_back(job(at + 1, 900, "draft", round));
                continue;
            }
            if (stage == 1) events.push_back(mark(at + 10, TraceKind::Batch, round));
            events.push_back(job(at + stage * 1'000, 900, "verify", round));
            events.push_back(frame(at + stage * 1'000 + 900, TraceKind::Send,
                                   static_cast<std::uint16_t>(stage + 1), kBatchKind));
            if (stage != kStages - 2) continue;
            events.push_back(mark(at + 90'000, TraceKind::Verdict, round));
            events.back().position = root + 1;
        }
        all.back().recorded = events.size();
    }
    const std::string text = trace_file_text(all);
    CHECK(json::accept(text));
    const auto count = [&text](const std::string& part) {
        std::size_t found = 0;
        for (std::size_t at = text.find(part); at != std::string::npos;
             at = text.find(part, at + 1)) {
            ++found;
        }
        return found;
    };
    CHECK(count(R"("ph":"s","name":"proposal")") == kRounds);
    CHECK(count(R"("ph":"f","name":"proposal")") == kRounds);
    CHECK(count(R"("ph":"f","name":"batch")") == kRounds);
    CHECK(count("\n") == count("{\"ph\"") + 2);  // one object in each line
}
