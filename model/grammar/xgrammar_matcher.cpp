// The GrammarLoader and the GrammarMatcher over xgrammar.
#include <algorithm>
#include <deque>
#include <exception>
#include <fmt/core.h>
#include <mutex>
#include <utility>
#include <variant>
#include <xgrammar/matcher.h>

#include "model/grammar/compiled_form.hpp"
#include "model/grammar/grammar.hpp"
#include "model/grammar/xgrammar_vocabulary.hpp"

namespace paceline {
namespace {

/// The mask's words as xgrammar takes them.
struct MaskTensor {
    explicit MaskTensor(TokenMask& mask) : shape{static_cast<std::int64_t>(mask.words().size())} {
        tensor.data = mask.words().data();
        tensor.device = {kDLCPU, 0};
        tensor.ndim = 1;
        tensor.dtype = xgrammar::GetBitmaskDLType();
        tensor.shape = &shape;
        tensor.strides = nullptr;
        tensor.byte_offset = 0;
    }
    std::int64_t shape;
    DLTensor tensor{};
};

class XgrammarMatcher final : public GrammarMatcher {
public:
    XgrammarMatcher(xgrammar::GrammarMatcher matcher, const XgrammarVocabulary& vocabulary)
        : matcher_{std::move(matcher)},
          vocabulary_{vocabulary},
          vocab_size_{vocabulary.vocab_size()} {}

    void fill(TokenMask& mask) override {
        if (mask.vocab() != vocab_size_) mask = TokenMask{vocab_size_};
        if (matcher_.IsTerminated()) {
            std::fill(mask.words().begin(), mask.words().end(), 0U);
            return;
        }
        MaskTensor tensor{mask};
        const bool filled = guarded([&] {
            (void)matcher_.FillNextTokenBitmask(&tensor.tensor);
            return true;
        });
        if (!filled) std::fill(mask.words().begin(), mask.words().end(), 0U);
        mask.trim();
    }
    bool accept(TokenId token) override {
        return guarded([&] { return !matcher_.IsTerminated() && matcher_.AcceptToken(token); });
    }
    void roll_back(std::size_t tokens) override {
        if (tokens == 0) return;
        (void)guarded([&] {
            matcher_.Rollback(static_cast<int>(tokens));
            return true;
        });
    }
    std::string forced_bytes() override {
        std::string bytes;
        (void)guarded([&] {
            if (!matcher_.IsTerminated()) bytes = matcher_.FindJumpForwardString();
            return true;
        });
        return bytes;
    }

    std::vector<TokenId> forced_tokens(std::size_t most) override {
        const std::string bytes = forced_bytes();
        return bytes.empty() ? GrammarMatcher::forced_tokens(most)
                             : vocabulary_.spelled(bytes, most);
    }

private:
    /// The library throws when a check of its own fails, or for memory. From then on the grammar
    /// allows nothing: the answer ends, and no stage does.
    template <class Call>
    bool guarded(Call&& call) {
        if (failed_) return false;
        try {
            return call();
        } catch (const std::exception&) {
            failed_ = true;
            return false;
        }
    }

    xgrammar::GrammarMatcher matcher_;
    bool failed_ = false;
    const XgrammarVocabulary& vocabulary_;  // of the loader
    std::size_t vocab_size_;
};

class XgrammarLoader final : public GrammarLoader {
public:
    explicit XgrammarLoader(GrammarVocabulary vocabulary) : vocabulary_{std::move(vocabulary)} {}

    Result<std::unique_ptr<GrammarMatcher>> match(const CompiledGrammarPtr& grammar,
                                                  std::span<const TokenId> end_tokens) override {
        const std::lock_guard lock{mutex_};
        try {
            Result<xgrammar::CompiledGrammar> loaded = load(grammar);
            if (!loaded) return loaded.error();
            std::vector<int> ends;
            for (const TokenId token : end_tokens) {
                if (token >= 0 && static_cast<std::size_t>(token) < vocabulary_.vocab_size())
                    ends.push_back(token);
            }
            // Without end tokens it ends by itself, as soon as it may.
            const std::optional<std::vector<int>> stops =
                ends.empty() ? std::nullopt : std::optional{ends};
            return std::unique_ptr<GrammarMatcher>{std::make_unique<XgrammarMatcher>(
                xgrammar::GrammarMatcher{loaded.value(), stops, ends.empty()}, vocabulary_)};
        } catch (const std::exception& error) {
            return Error{Errc::BadFile,
                         fmt::format("a compiled grammar cannot be loaded: {}", error.what())};
        }
    }

private:
    static constexpr std::size_t kKept = 16;
    static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;  // of the library's forms

    struct Kept {
        CompiledGrammarPtr from;
        xgrammar::CompiledGrammar loaded;
        std::size_t bytes = 0;
    };

    Result<xgrammar::CompiledGrammar> load(const CompiledGrammarPtr& grammar) {
        for (const Kept& one : kept_) {
            const CompiledGrammarPtr& from = one.from;
            if (from == grammar || (from->hash == grammar->hash && from->bytes == grammar->bytes))
                return one.loaded;
        }
        Result<CompiledForm> form = read_form(grammar->bytes);
        if (!form) return form.error();
        if (!vocabulary_.may_name(form.value().named))
            return Error{Errc::BadFile,
                         "a compiled grammar names tokens that are no control tokens here"};
        auto read = xgrammar::CompiledGrammar::DeserializeJSON(
            form.value().library, vocabulary_.info(form.value().named));
        if (const auto* failed = std::get_if<xgrammar::SerializationError>(&read)) {
            const std::string why =
                std::visit([](const auto& error) { return std::string{error.what()}; }, *failed);
            return Error{Errc::BadFile, "a compiled grammar cannot be loaded: " + why};
        }
        kept_.push_front({grammar, std::get<xgrammar::CompiledGrammar>(std::move(read)),
                          form.value().library.size()});
        forget_oldest();
        return kept_.front().loaded;
    }

    /// All but the latest one may go; answers keep what they use.
    void forget_oldest() {
        std::size_t bytes = 0;
        std::size_t count = 0;
        while (count < kept_.size() && count < kKept && (count == 0 || bytes <= kKeptBytes))
            bytes += kept_[count++].bytes;
        if (bytes > kKeptBytes && count > 1) --count;
        while (kept_.size() > count) kept_.pop_back();
    }

    std::mutex mutex_;
    XgrammarVocabulary vocabulary_;
    std::deque<Kept> kept_;  // the latest first
};

}  // namespace

std::unique_ptr<GrammarLoader> make_grammar_loader(GrammarVocabulary vocabulary) {
    return std::make_unique<XgrammarLoader>(std::move(vocabulary));
}

}  // namespace paceline
