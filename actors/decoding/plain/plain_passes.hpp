// PlainPasses: rows of one text through all layers of a backend, and the logits or the token after
// the last of them. Used by PlainDecoder.
//
// The row of a position has its home slot (slot == position). Where the backend can draw, the token
// is drawn with the layers, so that no hidden state leaves the device.
// Borrows the backend. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/decoding/request.hpp"
#include "ipc/base/ids.hpp"
#include "model/backend.hpp"
#include "model/device_sampler.hpp"

namespace paceline {

class PlainPasses {
public:
    /// Passes of up to `rows_max` rows, of a text of up to `context` tokens.
    PlainPasses(Backend& backend, int rows_max, Position context);

    /// The tokens [first, first + count) of `text`, behind those of earlier passes.
    RunOutcome run(std::span<const TokenId> text,
                   Position first,
                   std::int32_t count,
                   const Request& request,
                   const CancelToken* cancel);
    /// Whether the next token was drawn in the pass; if not, it is drawn from logits.
    [[nodiscard]] bool draws(const Request& request) const {
        return device_for(request) != nullptr;
    }
    /// The token that follows the text; nothing if the model gives no number to draw it from.
    [[nodiscard]] std::optional<TokenId> drawn() const { return tokens_.back(); }

    /// Logits after the last row of the last pass.
    [[nodiscard]] std::span<float> last_logits();
    /// Logits [count, vocab] after rows of the last pass.
    void head(std::size_t first_row, std::size_t count, std::span<float> logits);
    [[nodiscard]] const ModelConfig& model() const { return backend_->config(); }

private:
    [[nodiscard]] DeviceSampler* device_for(const Request& request) const;

    Backend* backend_;
    std::size_t last_rows_ = 0;  // rows of the last pass: where the newest hidden state lies
    std::vector<KvSlot> slots_;  // slots_[p] == p: the prefix table of every row
    std::vector<float> hidden_;  // [rows_max, dim], unless tokens are drawn with the layers
    std::vector<float> logits_;  // [vocab]
    std::vector<DrawJob> jobs_;  // of the last pass's rows, where tokens are drawn with the layers
    std::vector<std::optional<TokenId>> tokens_;
};

}  // namespace paceline
