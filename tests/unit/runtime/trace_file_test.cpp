#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/runtime/trace_fixture.hpp"

using namespace paceline;
using namespace paceline::test;

TEST_CASE("each stage is a process with its name, each incarnation a thread of it") {
    std::vector<ProcessTrace> all = one_batch();
    all.push_back({"segment-1", StageId{1}, Epoch{2}, {job(5000, 10, "load", 0)}, 1});
    const json trace = checked(all);
    std::map<int, std::string> names;
    std::map<int, std::pair<int, std::string>> threads;
    for (const json& event : of_phase(trace, "M")) {
        if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
        if (event["name"] == "thread_name") {
            threads[event["tid"]] = {event["pid"], event["args"]["name"]};
        }
    }
    CHECK(names ==
          std::map<int, std::string>{{1, "conductor"}, {2, "segment-1"}, {3, "segment-2"}});
    CHECK(threads.size() == 4);
    CHECK(threads[2] == std::pair<int, std::string>{2, "epoch 1"});
    CHECK(threads[3] == std::pair<int, std::string>{2, "epoch 2"});
}

TEST_CASE("a job shows its request, batch, rows, layers, heads and context") {
    const json trace = checked(one_batch());
    for (const json& slice : of_phase(trace, "X")) {
        if (slice["name"] != "verify 7") continue;
        CHECK(slice["args"] == json{{"request", 5},
                                    {"batch", 7},
                                    {"rows", 7},
                                    {"layers", 15},
                                    {"heads", 3},
                                    {"context", 100}});
        CHECK((slice["dur"] == 800 || slice["dur"] == 600));
    }
}

TEST_CASE("times count from the first event, and spans are sorted by their beginning") {
    // Spans are recorded at their end: an instant within the time of a span stands before it.
    const json trace = checked(
        {{"a", StageId{1}, Epoch{1}, {mark(5'000'010, TraceKind::Mark), wait(5'000'000, 20)}, 2}});
    REQUIRE(of_phase(trace, "X").size() == 1);
    CHECK(of_phase(trace, "X")[0]["ts"] == 0);
    REQUIRE(of_phase(trace, "i").size() == 1);
    CHECK(of_phase(trace, "i")[0]["ts"] == 10);
}

TEST_CASE("a frame is a slice from Send to Receive, and is counted while it is on its way") {
    const json trace = checked(one_batch());
    const std::vector<json> left = of_phase(trace, "b");
    const std::vector<json> arrived = of_phase(trace, "e");
    REQUIRE(left.size() == 2);
    CHECK(left[0]["name"] == "batch segment-1 -> segment-2");
    CHECK(arrived[0]["ts"].get<int>() - left[0]["ts"].get<int>() == 1912 - 1903);
    CHECK(left[1]["name"] == "verdict segment-2 -> conductor");
    std::vector<int> counts;
    for (const json& event : of_phase(trace, "C")) counts.push_back(event["args"]["frames"]);
    CHECK(counts == std::vector<int>{1, 0, 1, 0});
}

TEST_CASE("a frame whose receiver was quicker than its sender's note takes no time") {
    std::vector<ProcessTrace> all = one_batch();
    all[1].events[2].time_us = 1950;
    const json trace = checked(all);
    CHECK(of_phase(trace, "b")[0]["ts"] == of_phase(trace, "e")[0]["ts"]);
}

TEST_CASE("frames of a ring that was overwritten are left out, the others stay") {
    std::vector<ProcessTrace> all = one_batch();
    all[1].recorded = 100;
    const json trace = checked(all);
    REQUIRE(of_phase(trace, "b").size() == 1);
    CHECK(of_phase(trace, "b")[0]["name"] == "verdict segment-2 -> conductor");
}

TEST_CASE("frames are matched within one incarnation of both ends") {
    std::vector<ProcessTrace> all = one_batch();
    // The second incarnation of segment 2 receives what the same segment 1 sends later.
    all.push_back(
        {"segment-2", StageId{2}, Epoch{2}, {frame(9010, TraceKind::Receive, 1, kBatchKind)}, 1});
    all[1].events.push_back(frame(9000, TraceKind::Send, 2, kBatchKind));
    all[1].recorded = 5;
    SUBCASE("unknown to which one: left out") {
        CHECK(of_phase(checked(all), "b").empty());
    }
    SUBCASE("known: matched") {
        all[1].events[2].peer_epoch = Epoch{1};
        all[1].events[4].peer_epoch = Epoch{2};
        all[0].events[1].peer_epoch = Epoch{1};
        const json trace = checked(all);
        std::vector<int> took;
        for (std::size_t i = 0; i < of_phase(trace, "b").size(); ++i) {
            const int id = of_phase(trace, "b")[i]["id"];
            for (const json& end : of_phase(trace, "e")) {
                if (end["id"] != id) continue;
                took.push_back(end["ts"].get<int>() - of_phase(trace, "b")[i]["ts"].get<int>());
            }
        }
        CHECK(took == std::vector<int>{9, 2600 - 2522, 10});
    }
}

TEST_CASE("frames of two actors in one process are told apart") {
    TraceEvent first = frame(10, TraceKind::Send, 9, kBatchKind);
    TraceEvent second = frame(20, TraceKind::Send, 9, kBatchKind);
    first.self = StageId{1};
    second.self = StageId{2};  // lives in the process of actor 1
    TraceEvent from_second = frame(25, TraceKind::Receive, 2, kBatchKind);
    TraceEvent from_first = frame(26, TraceKind::Receive, 1, kBatchKind);
    from_first.peer_epoch = from_second.peer_epoch = Epoch{1};
    const json trace = checked({{"two", StageId{1}, Epoch{1}, {first, second}, 2},
                                {"verifier", StageId{9}, Epoch{1}, {from_second, from_first}, 2}});
    std::map<std::string, int> took;
    for (const json& event : of_phase(trace, "b")) took[event["name"]] -= event["ts"].get<int>();
    for (const json& event : of_phase(trace, "e")) took[event["name"]] += event["ts"].get<int>();
    CHECK(took == std::map<std::string, int>{{"batch two -> verifier", 16},
                                             {"batch stage 2 -> verifier", 5}});
}

TEST_CASE("what happened to peers and requests is an instant with its name") {
    std::vector<TraceEvent> events;
    for (const TraceKind kind : {TraceKind::PeerLost, TraceKind::PeerJoined, TraceKind::Replay,
                                 TraceKind::Fenced, TraceKind::Full}) {
        TraceEvent event = mark(10 + static_cast<int>(events.size()), kind);
        event.peer = StageId{1};
        event.detail = kBatchKind;
        events.push_back(event);
    }
    const json trace = checked({{"draft", StageId{1}, Epoch{1}, {events}, 5}});
    std::vector<std::string> names;
    for (const json& event : of_phase(trace, "i")) names.push_back(event["name"]);
    CHECK(names == std::vector<std::string>{"peer-lost draft", "peer-joined draft", "replay",
                                            "fenced", "full batch"});
}

TEST_CASE("no events, no processes and hostile names still give a file that loads") {
    CHECK(checked({})["traceEvents"].empty());
    const json trace = checked({{"a\"b\\c\n\x1b\xff", StageId{0xffff}, Epoch{1}, {}, 0}});
    CHECK(of_phase(trace, "M")[0]["args"]["name"] == "a\"b\\c???");
}

TEST_CASE("events of nonsense still give a file that loads, with growing times and nested rows") {
    std::mt19937_64 random{2024};
    for (int round = 0; round < 50; ++round) {
        std::vector<ProcessTrace> all(4);
        for (std::size_t p = 0; p < all.size(); ++p) {
            all[p].name = "p" + std::to_string(p);
            all[p].stage = StageId{static_cast<std::uint16_t>(p % 3)};
            all[p].epoch = Epoch{static_cast<std::uint32_t>(1 + p / 3)};
            all[p].recorded = random() % 60;
            for (int i = 0; i < 50; ++i) {
                TraceEvent event;
                event.time_us = static_cast<std::int64_t>(random() % 500);
                if (random() % 20 == 0) event.time_us = std::numeric_limits<std::int64_t>::min();
                if (random() % 20 == 0) event.time_us = std::numeric_limits<std::int64_t>::max();
                event.duration_us = static_cast<std::uint32_t>(random() % 60);
                if (random() % 20 == 0) event.duration_us = 0xffffffffU;
                event.kind = static_cast<TraceKind>(random() % 17);
                event.peer = StageId{static_cast<std::uint16_t>(random() % 4)};
                event.request = RequestId{random() % 2 == 0 ? 1 : ~std::uint64_t{0}};
                event.id = static_cast<std::uint32_t>(random() % 4);
                event.position = static_cast<Position>(random() % 3);
                if (random() % 20 == 0) event.position = std::numeric_limits<Position>::min();
                event.detail = static_cast<std::uint32_t>(random() % 6);
                event.label = static_cast<std::uint32_t>(random() % 8);
                event.peer_epoch = Epoch{static_cast<std::uint32_t>(random() % 3)};
                all[p].events.push_back(event);
            }
        }
        const json trace = checked(all);
        CHECK(of_phase(trace, "X").size() > 20);
    }
}
