// BeginPayload: what a stage gets of a request when an attempt begins: the text as far as it is
// decoded, and how candidates are accepted. Its bytes are the payload of control::Begin, to every
// stage.
//
//     text   prompt ................. answer so far      replayed: its tokens of the answer
//
// decode_begin() treats its input as untrusted: every count is bounded, and checked against the
// remaining bytes before memory is allocated. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/acceptance.hpp"
#include "actors/decoding/lost_keys.hpp"
#include "actors/decoding/request.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

/// The request, with the whole text: prompt and, on a replay, what was already committed.
struct BeginPayload : Request {
    std::int32_t replayed = 0;  // trailing tokens of `text` that belong to the answer already
    /// Counts how often Begins had to say that segments have lost keys of what was cached before:
    /// `keys_lost` since the generation before this one.
    std::uint32_t cache_generation = 0;
    LostKeys keys_lost = {};
    AcceptanceRule acceptance = AcceptanceRule::Coupled;  // the pipeline's
    // Of a stage that needs the grammar: its hash, and the bytes of one that this incarnation has
    // not got (grammar_store.hpp). `grammar` does not travel.
    std::string grammar_hash = {};
    std::string grammar_bytes = {};
    bool grammars_forgotten = false;  // all that were sent before

    [[nodiscard]] FinishRule finish_rule() const {
        FinishRule rule = Request::finish_rule();
        rule.answer_begin -= replayed;
        return rule;
    }
};

/// Errors: BadArgument naming the field, its value and the allowed range.
[[nodiscard]] Status validate(const BeginPayload& begin, int vocab_size, std::int32_t kv_slots);

[[nodiscard]] std::vector<std::byte> encode_begin(const BeginPayload& begin);

/// Errors: Protocol, naming the field whose count or place is wrong.
[[nodiscard]] Result<BeginPayload> decode_begin(std::span<const std::byte> bytes);

}  // namespace paceline
