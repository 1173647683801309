#include "runtime/observe/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "runtime/observe/job_record.hpp"

namespace paceline {
namespace {

constexpr std::array kJobNames = {"job",  "prefill", "verify", "draft",
                                  "load", "replay",  "exit",   "optimise"};
static_assert(kJobNames.size() <= kJobNamesMax);

}  // namespace

const char* name_of(TraceKind kind) {
    switch (kind) {
        case TraceKind::Job:
            return "job";
        case TraceKind::Wait:
            return "wait";
        case TraceKind::Send:
            return "send";
        case TraceKind::Receive:
            return "receive";
        case TraceKind::Full:
            return "full";
        case TraceKind::Batch:
            return "batch";
        case TraceKind::Proposal:
            return "proposal";
        case TraceKind::Verdict:
            return "verdict";
        case TraceKind::Commit:
            return "commit";
        case TraceKind::Fenced:
            return "fenced";
        case TraceKind::PeerLost:
            return "peer-lost";
        case TraceKind::PeerJoined:
            return "peer-joined";
        case TraceKind::Replay:
            return "replay";
        case TraceKind::Mark:
            return "mark";
    }
    return "unknown";
}

std::uint32_t job_name_index(const char* name) {
    for (std::size_t i = 0; i < kJobNames.size(); ++i) {
        if (std::strcmp(kJobNames[i], name) == 0) return static_cast<std::uint32_t>(i);
    }
    return 0;
}

const char* job_name(std::uint32_t index) {
    return index < kJobNames.size() ? kJobNames[index] : kJobNames.front();
}

std::uint16_t heads_of(const JobLabel& label) {
    return static_cast<std::uint16_t>(std::min(label.heads, 0xffffU));
}

}  // namespace paceline
