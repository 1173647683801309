// DecodedText: an answer that a model gave greedily, with what the studies of skip sets need of it:
// the residuals of every token of the answer, and rows that compute a token again without some
// sub-layers.
//
// Position p of the text has its keys in slot p; scratch slots follow behind the longest text.
// Borrows the backend; the next text overwrites the keys of the one before. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/backend.hpp"
#include "model/skip_set.hpp"

namespace paceline::skip_sets {

class DecodedText {
public:
    /// Decodes up to `count` tokens after `prompt`, ending after one of `ends`.
    /// Precondition: the backend has slots for text_max + scratch positions, prompt + count <=
    /// text_max.
    DecodedText(Backend& backend,
                std::vector<TokenId> prompt,
                int count,
                std::span<const TokenId> ends,
                int text_max);

    [[nodiscard]] const std::vector<TokenId>& tokens() const { return tokens_; }
    /// The positions of rows that predicted a token of the answer: [first, end).
    [[nodiscard]] Position first() const { return first_; }
    [[nodiscard]] Position end() const { return static_cast<Position>(tokens_.size()) - 1; }
    /// [layers + 1, dim] of such a position: the residual after each layer. The first is zero: no
    /// study reads it.
    [[nodiscard]] std::span<const float> stack(Position position) const;

    /// Residuals [masks, dim] after all layers: the token at `position` once for each mask, seeing
    /// the whole model's keys before it and its own.
    [[nodiscard]] std::vector<float> without(Position position,
                                             std::span<const SublayerMask> masks);
    /// One layer on residuals [rows, dim] in place, as LayerSkipDp wants it.
    void run_layer(Position position, int layer, std::span<float> states);
    /// The tokens of [begin, begin + rows) once more, drafted with `mask`: each sees the whole
    /// model's keys before `begin` and the others' own. Residuals [rows, dim].
    [[nodiscard]] std::vector<float> window(Position begin, int rows, const SublayerMask& mask);

    /// How many tokens are likelier than the text's own next one, after residuals of [begin, begin
    /// + rows).
    [[nodiscard]] std::vector<int> ranks(Position begin, std::span<const float> hidden);
    /// The likeliest next token after each residual.
    [[nodiscard]] std::vector<TokenId> likeliest(std::span<const float> hidden);

private:
    [[nodiscard]] std::size_t dim() const;
    [[nodiscard]] Row row(Position position) const;
    void run(std::span<const Row> rows, std::span<float> hidden);

    Backend& backend_;
    std::vector<TokenId> tokens_;
    Position first_;
    std::vector<KvSlot> slots_;    // of the text,
    std::vector<KvSlot> scratch_;  // and behind it
    std::vector<float> stacks_;    // of the answer's rows: [rows, layers + 1, dim]
};

}  // namespace paceline::skip_sets
