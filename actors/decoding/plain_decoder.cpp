#include "actors/decoding/plain_decoder.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <utility>

#include "model/sampling/sampler_scratch.hpp"

namespace paceline {
namespace {

Error bad(const std::string& what) {
    return Error{Errc::BadArgument, what};
}

}  // namespace

Result<PlainDecoder> PlainDecoder::make(Backend& backend, PlainOptions options) {
    const ModelConfig& config = backend.config();
    if (backend.first_layer() != 0 || backend.last_layer() != config.layers) {
        return bad(fmt::format("plain decoding needs all {} layers, but the backend holds {} .. {}",
                               config.layers, backend.first_layer(), backend.last_layer()));
    }
    if (options.prefill_rows < 1) {
        return bad(fmt::format("prefill_rows = {}, must be at least 1", options.prefill_rows));
    }
    const Position most = std::min<Position>(backend.kv_slots(), config.context_length);
    if (options.context < 0 || options.context > most) {
        return bad(fmt::format("context = {}, must be 1 .. {} (the model has {}, the KV cache {})",
                               options.context, most, config.context_length, backend.kv_slots()));
    }
    const Position context = options.context == 0 ? most : options.context;
    if (context < 1) return bad("the KV cache has no slots");
    return PlainDecoder{backend, std::move(options), context};
}

PlainDecoder::PlainDecoder(Backend& backend, PlainOptions options, Position context)
    : prefill_rows_{std::min<int>(options.prefill_rows, context)},
      context_{context},
      passes_{backend, prefill_rows_, context},
      scratch_{std::make_unique<SamplerScratch>()},
      grammars_{std::move(options.grammars)} {
    text_.reserve(static_cast<std::size_t>(context));
}

PlainDecoder::PlainDecoder(PlainDecoder&&) noexcept = default;
PlainDecoder& PlainDecoder::operator=(PlainDecoder&&) noexcept = default;
PlainDecoder::~PlainDecoder() = default;

void PlainDecoder::reset() {
    text_.clear();
    fed_ = 0;
}

Status PlainDecoder::check(const Request& request, Position context) const {
    const std::vector<TokenId>& more = request.text;
    const int vocab = passes_.model().vocab_size;
    for (std::size_t i = 0; i < more.size(); ++i) {
        if (more[i] < 0 || more[i] >= vocab) {
            return bad(fmt::format("prompt token {} is {}, but the vocabulary is 0 .. {}", i,
                                   more[i], vocab - 1));
        }
    }
    const std::size_t length = text_.size() + more.size();
    if (length == 0) return bad("the prompt is empty: there is nothing to continue");
    if (length >= static_cast<std::size_t>(context)) {
        return bad(
            fmt::format("the prompt has {} tokens, which leaves no room in the context of {} "
                        "tokens; use a larger context or a shorter prompt",
                        length, context));
    }
    if (request.max_tokens < 1 && request.max_tokens != kUnlimitedTokens) {
        return bad(fmt::format("max_tokens = {}, must be at least 1, or -1", request.max_tokens));
    }
    if (request.grammar.any() && request.compiled == nullptr)
        return bad("the grammar is not compiled");
    if (request.compiled != nullptr && request.end_tokens.empty())
        return bad("an answer with a grammar needs end tokens, which end it");
    if (request.compiled != nullptr && grammars_ == nullptr) return no_grammars();
    return validate(request.sampling, vocab);
}

/// Of an answer that begins after `length` tokens.
Status PlainDecoder::begin_grammar(const Request& request, Position length) {
    grammar_.reset();
    if (request.compiled == nullptr) return {};
    grammar_ =
        std::make_unique<AnswerGrammar>(*grammars_, request.compiled, request.end_tokens, length);
    return grammar_->follow(text_);
}

/// The next rows of the text that are not in the KV cache.
RunOutcome PlainDecoder::feed(const Request& request, const CancelToken* cancel) {
    const auto left = static_cast<std::int32_t>(text_.size()) - fed_;
    const auto count = std::min<std::int32_t>(left, prefill_rows_);
    const RunOutcome outcome = passes_.run(text_, fed_, count, request, cancel);
    if (outcome == RunOutcome::Cancelled) return outcome;
    const Position first = std::exchange(fed_, fed_ + count);
    if (request.scores.prompt)
        scores_.prompt(passes_, text_, first, fed_, request.scores.top, *scratch_);
    return outcome;
}

/// The token after the last row that was fed.
std::optional<TokenId> PlainDecoder::draw(const Request& request) {
    if (passes_.draws(request)) return passes_.drawn();
    const std::span<float> logits = passes_.last_logits();
    if (request.scores.answer) scores_.read(logits, request.scores.top, *scratch_);
    const TokenMask* mask = grammar_ == nullptr ? nullptr : &grammar_->mask();
    const std::optional<TokenId> token =
        sample(logits, static_cast<Position>(text_.size()), {.committed = text_, .path = {}},
               request.sampling, *scratch_, mask);
    if (token && grammar_ != nullptr && !grammar_->accept(*token)) return std::nullopt;
    return token;
}

Result<AnswerStats> PlainDecoder::run(const Request& request,
                                      const OnToken& on_token,
                                      const CancelToken* cancel,
                                      const Clock& clock) {
    const Position context = request.context == 0 ? context_ : std::min(request.context, context_);
    if (const Status checked = check(request, context); !checked) return checked.error();
    text_.insert(text_.end(), request.text.begin(), request.text.end());
    const auto length = static_cast<Position>(text_.size());
    if (Status begun = begin_grammar(request, length); !begun) {
        text_.resize(text_.size() - request.text.size());
        return begun.error();
    }
    const FinishRule rule{.end_tokens = request.end_tokens,
                          .max_tokens = request.max_tokens,
                          .answer_begin = length,
                          .context = context};
    if (request.scores.prompt) fed_ = 0;  // a score comes from the row before
    AnswerStats stats;
    const Position unfed = length - fed_;
    stats.prompt_tokens = unfed;
    stats.begun = clock();
    const auto end = [&stats](FinishReason reason) {
        stats.finish = reason;
        return stats;
    };
    while (true) {
        while (fed_ < static_cast<Position>(text_.size())) {
            if (feed(request, cancel) == RunOutcome::Cancelled) {
                if (stats.generated_tokens == 0) {
                    stats.prompt_tokens = unfed - (length - fed_);
                    stats.prefilled = clock();
                }
                return end(FinishReason::Interrupted);
            }
            if (on_prefill_ && fed_ < length) on_prefill_(1.0 - double(length - fed_) / unfed);
        }
        const auto position = static_cast<Position>(text_.size());
        const std::optional<TokenId> token = draw(request);
        if (stats.generated_tokens == 0) stats.prefilled = clock();
        if (!token) {
            --fed_;  // the next run computes it again
            return end(FinishReason::Failed);
        }
        text_.push_back(*token);
        stats.last_token = clock();
        if (stats.generated_tokens++ == 0) stats.first_token = stats.last_token;
        const FinishReason finish = rule.after(*token, position);
        if (request.scores.answer) scores_.report(position, *token);
        const Go go = on_token(*token);
        if (finish != FinishReason::None) return end(finish);
        if (go == Go::Stop || (cancel != nullptr && cancel->cancelled()))
            return end(FinishReason::Interrupted);
    }
}

}  // namespace paceline
