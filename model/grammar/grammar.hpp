// Grammars: from the language that a client states to the tokens that may come next.
//
//     GrammarSpec --GrammarCompiler--> CompiledGrammar --GrammarLoader--> GrammarMatcher
//      (a schema)   seconds at worst     (bytes, a hash)   milliseconds     one of each answer
//
// A client can write a hundred bytes whose compilation takes minutes: it runs in processes with
// limits (launch/grammar), never in a loop. A CompiledGrammar travels as bytes to whoever draws
// tokens, and is loaded there. A matcher follows one answer, and says before each token which ones
// may come.
//
// The interfaces are independent of the library behind them (xgrammar_*.cpp, the only sources that
// include it), so that a build without it has the same engine, and simulations use grammars of
// their own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/grammar/grammar_spec.hpp"
#include "model/sampling/token_mask.hpp"
#include "model/tokenizer/tokenizer.hpp"

namespace paceline {

/// The longest text of a GrammarSpec, and the longest form of a compiled grammar, in bytes.
inline constexpr std::uint32_t kGrammarTextMax = 1U << 20;
inline constexpr std::uint32_t kCompiledGrammarMax = 4U << 20;
inline constexpr std::uint32_t kGrammarHashBytes = 32;

/// Immutable; any thread.
struct CompiledGrammar {
    std::string hash;   // of kind and text: 32 hexadecimal digits
    std::string bytes;  // for a GrammarLoader of the same vocabulary
};
using CompiledGrammarPtr = std::shared_ptr<const CompiledGrammar>;

/// 32 hexadecimal digits of SHA-256: equal for equal specs.
[[nodiscard]] std::string hash_of(const GrammarSpec& spec);

/// What a grammar needs to know of a tokenizer. Immutable; any thread.
struct GrammarVocabulary {
    std::vector<std::string> texts;  // the bytes of each token; of control tokens their names
    std::vector<bool> control;  // they say nothing, and no grammar allows them unless it names them
    std::size_t vocab_size = 0;  // of the model: its rows of logits; at least texts.size()
};
[[nodiscard]] GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer,
                                                   std::size_t vocab_size);

/// Follows one answer. One thread at a time.
class GrammarMatcher {
public:
    GrammarMatcher() = default;
    GrammarMatcher(const GrammarMatcher&) = delete;
    GrammarMatcher& operator=(const GrammarMatcher&) = delete;
    virtual ~GrammarMatcher() = default;

    /// The tokens that may come next: end tokens where the grammar may end, and nothing else where
    /// it must.
    virtual void fill(TokenMask& mask) = 0;
    /// False: the grammar does not allow `token` next, and nothing has changed.
    [[nodiscard]] virtual bool accept(TokenId token) = 0;
    /// The last `tokens` (at most as many as were accepted) are taken back.
    virtual void roll_back(std::size_t tokens) = 0;
    /// Bytes that every continuation begins with; empty: there are several first ones, or it may
    /// end here.
    [[nodiscard]] virtual std::string forced_bytes() = 0;
    /// Tokens that spell what is forced, at most `most`, longest tokens first: the likeliest
    /// spelling, not the only one. End tokens are among them where nothing else may come.
    [[nodiscard]] virtual std::vector<TokenId> forced_tokens(std::size_t most);
};

/// Any thread.
class GrammarLoader {
public:
    GrammarLoader() = default;
    GrammarLoader(const GrammarLoader&) = delete;
    GrammarLoader& operator=(const GrammarLoader&) = delete;
    virtual ~GrammarLoader() = default;

    /// A matcher at the beginning of an answer; it must not outlive the loader. `end_tokens` end
    /// it; without any, it may only be cut. What it has loaded it may keep for the next one of the
    /// same hash. Errors: BadFile for bytes that are not a grammar of this vocabulary; Unsupported
    /// in a build without grammars.
    [[nodiscard]] virtual Result<std::unique_ptr<GrammarMatcher>> match(
        const CompiledGrammarPtr& grammar, std::span<const TokenId> end_tokens) = 0;
};

/// Compiles. Not thread-safe; without limits of its own.
class GrammarCompiler {
public:
    GrammarCompiler() = default;
    GrammarCompiler(const GrammarCompiler&) = delete;
    GrammarCompiler& operator=(const GrammarCompiler&) = delete;
    virtual ~GrammarCompiler() = default;

    /// Errors: BadArgument with the reason, and the position where the library knows it;
    /// Unsupported in a build without grammars; OutOfMemory.
    [[nodiscard]] virtual Result<CompiledGrammarPtr> compile(const GrammarSpec& spec) = 0;
};

/// Whether this build has them.
[[nodiscard]] bool has_grammars();
/// Why a build without them refuses one.
[[nodiscard]] Error no_grammars();
/// Of the library; in a build without it they refuse everything.
[[nodiscard]] std::unique_ptr<GrammarCompiler> make_grammar_compiler(GrammarVocabulary vocabulary);
[[nodiscard]] std::unique_ptr<GrammarLoader> make_grammar_loader(GrammarVocabulary vocabulary);

}  // namespace paceline
