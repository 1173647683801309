#include "actors/conductor/verdict_checks.hpp"

#include <fmt/core.h>
#include <string>

#include "ipc/base/faults.hpp"

namespace paceline {

Result<msg::Verdict> read_verdict(const ReceivedFrame& frame,
                                  StageId verifier,
                                  const MessageLimits& limits) {
    if (frame.from != verifier || frame.kind != static_cast<std::uint16_t>(msg::Kind::Verdict)) {
        return Error{Errc::Protocol,
                     fmt::format("stage {} sent the conductor a message of kind {}; only verdicts "
                                 "of the last segment are expected",
                                 frame.from.value, frame.kind)};
    }
    Result<msg::Verdict> verdict = decode_message<msg::Verdict>(frame.bytes);
    if (!verdict || planted(PlantedBug::VerdictUnchecked)) return verdict;
    if (Status form = check_message(verdict.value(), limits); !form) return form.error();
    const Epoch claimed = verdict.value().route.epoch;
    if (claimed == frame.epoch) return verdict;
    return Error{Errc::Protocol,
                 fmt::format("a verdict of epoch {} from stage {}, which is at epoch {}",
                             claimed.value, frame.from.value, frame.epoch.value)};
}

Status check_place(const msg::Verdict& verdict, Position next, const FinishRule& rule) {
    if (verdict.base < next || planted(PlantedBug::VerdictUnchecked)) return {};
    if (verdict.base > next) {
        return Error{
            Errc::Protocol,
            fmt::format("a verdict starts at position {}, the log ends at {}", verdict.base, next)};
    }
    const std::int32_t room = rule.room_at(next);
    const auto count = static_cast<std::int32_t>(verdict.count);
    const bool ends = verdict.finish != FinishReason::None;
    if (count < room || (count == room && ends)) return {};
    return Error{
        Errc::Protocol,
        fmt::format("a verdict commits {} tokens from position {} on and says {}; {} fit, by "
                    "a context of {} and a limit of {} tokens from position {} on",
                    count, next, ends ? "that this is the end" : "nothing of an end", room,
                    rule.context, rule.max_tokens, rule.answer_begin)};
}

}  // namespace paceline
