#include "actors/conductor/verdict_checks.hpp"

#include <fmt/core.h>

#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// A message of the verifier, in the form that its kind has.
template <class M>
Result<M> read_message(const ReceivedFrame& frame, StageId verifier, const MessageLimits& limits) {
    if (frame.from != verifier || frame.kind != static_cast<std::uint16_t>(M::kKind)) {
        return Error{Errc::Protocol,
                     fmt::format("stage {} sent the conductor a message of kind {}; only verdicts "
                                 "and scores of the last segment are expected",
                                 frame.from.value, frame.kind)};
    }
    Result<M> message = decode_message<M>(frame.bytes);
    if (!message || planted(PlantedBug::VerdictUnchecked)) return message;
    if (Status form = check_message(message.value(), limits); !form) return form.error();
    const Epoch claimed = message.value().route.epoch;
    if (claimed == frame.epoch) return message;
    return Error{Errc::Protocol,
                 fmt::format("a message of epoch {} from stage {}, which is at epoch {}",
                             claimed.value, frame.from.value, frame.epoch.value)};
}

}  // namespace

Result<msg::Verdict> read_verdict(const ReceivedFrame& frame,
                                  StageId verifier,
                                  const MessageLimits& limits) {
    return read_message<msg::Verdict>(frame, verifier, limits);
}

Result<msg::Scores> read_scores(const ReceivedFrame& frame,
                                StageId verifier,
                                const MessageLimits& limits) {
    return read_message<msg::Scores>(frame, verifier, limits);
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
