// What the tests of trace files share: events by hand, a batch through two segments, and what every
// file must be whatever the events were.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ipc/wire/messages.hpp"
#include "runtime/observe/trace_file.hpp"

namespace paceline::test {

using nlohmann::json;

inline constexpr RequestId kRequest{5};
inline constexpr std::uint32_t kBatchKind = static_cast<std::uint32_t>(msg::Kind::Batch);
inline constexpr std::uint32_t kVerdictKind = static_cast<std::uint32_t>(msg::Kind::Verdict);

inline TraceEvent job(std::int64_t start,
                      std::uint32_t micros,
                      const char* name,
                      std::uint32_t batch) {
    TraceEvent event;
    event.time_us = start;
    event.duration_us = micros;
    event.kind = TraceKind::Job;
    event.request = kRequest;
    event.id = batch;
    event.position = 100;  // context
    event.count = 7;       // rows
    event.detail = 15;     // layers
    event.heads = 3;
    event.label = job_name_index(name);
    return event;
}

inline TraceEvent wait(std::int64_t start, std::uint32_t micros) {
    TraceEvent event;
    event.time_us = start;
    event.duration_us = micros;
    event.kind = TraceKind::Wait;
    return event;
}

inline TraceEvent mark(std::int64_t time, TraceKind kind, std::uint32_t batch = 0) {
    TraceEvent event;
    event.time_us = time;
    event.kind = kind;
    event.request = kRequest;
    event.attempt = Attempt{1};
    event.id = batch;
    event.position = 40;
    event.count = 3;
    return event;
}

inline TraceEvent frame(std::int64_t time, TraceKind kind, std::uint16_t peer, std::uint32_t what) {
    TraceEvent event;
    event.time_us = time;
    event.kind = kind;
    event.peer = StageId{peer};
    event.detail = what;
    return event;
}

/// A batch through two segments to its verdict and its commit.
inline std::vector<ProcessTrace> one_batch() {
    std::vector<ProcessTrace> all(3);
    all[0] = {"conductor",
              StageId{0},
              Epoch{1},
              {wait(1000, 1600), frame(2600, TraceKind::Receive, 2, kVerdictKind),
               mark(2601, TraceKind::Commit, 7)},
              3};
    all[1] = {"segment-1",
              StageId{1},
              Epoch{1},
              {mark(1100, TraceKind::Batch, 7), job(1102, 800, "verify", 7),
               frame(1903, TraceKind::Send, 2, kBatchKind), wait(1904, 700)},
              4};
    all[2] = {"segment-2",
              StageId{2},
              Epoch{1},
              {wait(1000, 910), frame(1912, TraceKind::Receive, 1, kBatchKind),
               job(1913, 600, "verify", 7), mark(2520, TraceKind::Verdict, 7),
               frame(2522, TraceKind::Send, 0, kVerdictKind)},
              5};
    return all;
}

inline std::vector<json> of_phase(const json& trace, const std::string& phase) {
    std::vector<json> found;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] == phase) found.push_back(event);
    }
    return found;
}

/// Slices of one row, in the order of the file: each lies within or after the ones before it.
inline void check_nesting(const std::vector<json>& slices) {
    std::map<int, std::vector<std::int64_t>> open;
    for (const json& slice : slices) {
        auto& ends = open[slice["tid"]];
        const std::int64_t start = slice["ts"];
        const std::int64_t end = start + slice["dur"].get<std::int64_t>();
        CHECK(end >= start);
        while (!ends.empty() && ends.back() <= start) ends.pop_back();
        if (!ends.empty()) CHECK(end <= ends.back());
        ends.push_back(end);
    }
}

/// Every arrow begins once, ends once, not before it begins, and touches a slice at each point.
inline void check_arrows(const json& trace) {
    std::set<std::tuple<std::int64_t, int, int>> slice_starts;
    for (const json& slice : of_phase(trace, "X")) {
        slice_starts.emplace(slice["ts"], slice["pid"], slice["tid"]);
    }
    std::map<std::int64_t, std::string> phases;
    for (const json& event : trace["traceEvents"]) {
        const std::string phase = event["ph"];
        if (phase != "s" && phase != "t" && phase != "f") continue;
        CHECK(slice_starts.contains({event["ts"], event["pid"], event["tid"]}));
        CHECK((phase == "s" || event["bp"] == "e"));
        phases[event["id"]] += phase;
    }
    for (const auto& [id, text] : phases) {
        CHECK(text.front() == 's');
        CHECK(text.back() == 'f');
        CHECK(text.substr(1, text.size() - 2) == std::string(text.size() - 2, 't'));
    }
}

/// Every frame leaves once and arrives once, not before; a counter never falls below 0.
inline void check_frames(const json& trace) {
    std::map<std::int64_t, std::int64_t> left;
    std::set<std::int64_t> arrived;
    for (const json& event : of_phase(trace, "b"))
        CHECK(left.emplace(event["id"], event["ts"]).second);
    for (const json& event : of_phase(trace, "e")) {
        CHECK(arrived.insert(event["id"].get<std::int64_t>()).second);
        REQUIRE(left.contains(event["id"]));
        CHECK(event["ts"] >= left[event["id"]]);
    }
    CHECK(arrived.size() == left.size());
    for (const json& event : of_phase(trace, "C")) CHECK(event["args"]["frames"] >= 0);
}

/// What every trace file must be, whatever the events were.
inline json checked(const std::vector<ProcessTrace>& processes) {
    const std::string text = trace_file_text(processes);
    json trace = json::parse(text);
    std::int64_t last = 0;
    for (const json& event : trace["traceEvents"]) {
        CHECK(event["pid"] > 0);
        if (event["ph"] == "M") continue;
        CHECK(event["ts"] >= last);
        last = event["ts"];
    }
    check_nesting(of_phase(trace, "X"));
    check_arrows(trace);
    check_frames(trace);
    return trace;
}

}  // namespace paceline::test
