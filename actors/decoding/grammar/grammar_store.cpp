#include "actors/decoding/grammar/grammar_store.hpp"

#include <memory>
#include <utility>

#include "ipc/base/faults.hpp"

namespace paceline {

void SentGrammars::add(StageId to, const CompiledGrammar& grammar, BeginPayload& begin) {
    begin.grammar_hash = grammar.hash;
    Sent& sent = sent_[to];
    if (sent.bytes.contains(grammar.hash)) return;
    begin.grammar_bytes = grammar.bytes;
    if (sent.bytes.size() >= kGrammarsKept ||
        sent.total + grammar.bytes.size() > kGrammarBytesKept) {
        begin.grammars_forgotten = true;
        sent = {};
    }
    sent.bytes.emplace(grammar.hash, grammar.bytes.size());
    sent.total += grammar.bytes.size();
}

void SentGrammars::forget(StageId stage) {
    if (!planted(PlantedBug::GrammarNotResent)) sent_.erase(stage);
}

Status GrammarStore::take(BeginPayload& begin) {
    if (begin.grammars_forgotten) kept_.clear();
    if (begin.grammar_hash.empty()) return {};
    if (!begin.grammar_bytes.empty()) {
        kept_[begin.grammar_hash] = std::make_shared<const CompiledGrammar>(
            CompiledGrammar{begin.grammar_hash, std::exchange(begin.grammar_bytes, {})});
    }
    const auto found = kept_.find(begin.grammar_hash);
    if (found == kept_.end())
        return Error{Errc::Protocol,
                     "a Begin names the grammar " + begin.grammar_hash + ", which was not sent"};
    begin.compiled = found->second;
    return {};
}

}  // namespace paceline
