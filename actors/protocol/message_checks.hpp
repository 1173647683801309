// Checks of a peer's message before it is used: sizes, counts, vocabulary, positions, slots.
//
// Only the form is checked here. TokenTree and RequestState check whether a message fits the state
// of its request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fmt/core.h>
#include <limits>
#include <span>

#include "ipc/base/ids.hpp"
#include "ipc/base/limits.hpp"
#include "ipc/base/result.hpp"
#include "ipc/wire/batch_frame.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

/// Upper bounds of the numbers in a message.
struct MessageLimits {
    std::int32_t vocab_size = 0;
    std::int32_t kv_slots = 0;
    Position context = 0;
    std::uint32_t batch_rows = kBatchRowsMax;  // this one and the next may be reached
    std::uint32_t sublayers = std::numeric_limits<std::uint32_t>::max();  // of the target
};

/// The same for a tensor: of the model, and of the pool that it claims to lie in.
struct TensorLimits {
    std::uint32_t layers = 0;
    Position context = 0;
    std::uint64_t slot_bytes = 0;
};

/// The message in `bytes`. Errors: Protocol if the size is not that of M, or of the Batch.
template <msg::DataMessage M>
[[nodiscard]] Result<M> decode_message(std::span<const std::byte> bytes) {
    if constexpr (msg::PlainMessage<M>) {
        if (bytes.size() != sizeof(M)) {
            return Error{Errc::Protocol,
                         fmt::format("a message of kind {} has {} bytes, not {}",
                                     static_cast<int>(M::kKind), bytes.size(), sizeof(M))};
        }
        M message;
        std::memcpy(&message, bytes.data(), sizeof(M));
        return message;
    } else {
        return msg::decode_batch(bytes);
    }
}

/// Errors: Protocol, naming message, field and value.
[[nodiscard]] Status check_message(const msg::Proposal& proposal, const MessageLimits& limits);
/// A price that no dispatcher gives: not finite, negative, or of an unknown mode.
[[nodiscard]] Status check_message(const msg::Price& price);
[[nodiscard]] Status check_message(const msg::Prefix& prefix, const MessageLimits& limits);
[[nodiscard]] Status check_message(const msg::Scores& scores, const MessageLimits& limits);
[[nodiscard]] Status check_message(const msg::OwnTokens& own, const MessageLimits& limits);
[[nodiscard]] Status check_message(const msg::Draw& draw, const MessageLimits& limits);
[[nodiscard]] Status check_message(const msg::Batch& batch, const MessageLimits& limits);
[[nodiscard]] Status check_message(const msg::TensorNote& note, const TensorLimits& limits);
[[nodiscard]] Status check_message(const msg::Verdict& verdict, const MessageLimits& limits);

/// Counts and traces a message that is too old to change anything.
void count_fenced(Context& context, StageId from, std::uint16_t kind, const msg::Route& route);

}  // namespace paceline
