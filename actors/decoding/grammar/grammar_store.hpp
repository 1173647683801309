// How compiled grammars get from the conductor to the stages that need them: with the first Begin
// of each incarnation that names one. Later ones name its hash alone.
//
//     SentGrammars (conductor)    Begin                                     GrammarStore (stage)
//       {}                        hash A, bytes of A     ------------->       {A}
//       {A}                       hash A                 ------------->       {A}
//       {A, B, ...}: full         hash C, bytes, forgets ------------->       {C}
//
// Both apply the same messages in the same order, so the sender knows what the receiver has.
// Answers that run keep what they use. Bounded by kGrammarsKept and kGrammarBytesKept. Threads: the
// actor's loop.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "actors/decoding/begin_payload.hpp"
#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/grammar/grammar.hpp"

namespace paceline {

inline constexpr std::size_t kGrammarsKept = 64;
inline constexpr std::size_t kGrammarBytesKept = std::size_t{32} << 20;

/// What has been sent to each stage.
class SentGrammars {
public:
    /// Adds to a Begin for `to` what that stage lacks of `grammar`.
    void add(StageId to, const CompiledGrammar& grammar, BeginPayload& begin);
    /// It is lost: its next incarnation has nothing.
    void forget(StageId stage);

private:
    struct Sent {
        std::map<std::string, std::size_t> bytes;  // by hash
        std::size_t total = 0;
    };
    std::map<StageId, Sent> sent_;
};

/// What a stage has been sent.
class GrammarStore {
public:
    /// For every Begin, in the order of arrival, stale ones too: sets `begin.compiled`, or leaves
    /// it empty if it names no grammar. Errors: Protocol if it names one that was not sent.
    Status take(BeginPayload& begin);
    [[nodiscard]] std::size_t size() const { return kept_.size(); }

private:
    std::map<std::string, CompiledGrammarPtr> kept_;  // by hash
};

}  // namespace paceline
