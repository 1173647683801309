// What the conductor checks before it commits a verdict.
//
// A token outside the vocabulary, after a gap or beyond the request's limits would reach the client
// and then make every replay fail. So a verdict that fails a check is the fault of its sender,
// which is replaced: the attempt is cancelled, and nothing of the verdict is committed.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "actors/decoding/finish_rule.hpp"
#include "actors/protocol/message_checks.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"

namespace paceline {

/// A data message as the conductor received it. `epoch`: of the sender, as its channel has it.
struct ReceivedFrame {
    StageId from;
    Epoch epoch;
    std::uint16_t kind = 0;
    std::span<const std::byte> bytes;
};

/// Errors: Protocol if it is no verdict of the verifier's incarnation at work, or a malformed one.
[[nodiscard]] Result<msg::Verdict> read_verdict(const ReceivedFrame& frame,
                                                StageId verifier,
                                                const MessageLimits& limits);
/// The same of scores.
[[nodiscard]] Result<msg::Scores> read_scores(const ReceivedFrame& frame,
                                              StageId verifier,
                                              const MessageLimits& limits);

/// Checks a verdict of the current attempt against the log, which ends at `next`. Errors: Protocol
/// if it starts after a gap, commits more tokens than `rule` allows, or reaches a limit without a
/// finish reason.
[[nodiscard]] Status check_place(const msg::Verdict& verdict,
                                 Position next,
                                 const FinishRule& rule);

}  // namespace paceline
