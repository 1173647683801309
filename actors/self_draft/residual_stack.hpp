// ResidualStack: the residuals after each sub-layer of the rows that verify one tapped chain, for
// the programme that chooses the skipped layers. Used by SelfDraft.
//
//     keep()   the rows of a batch are built: they begin at the first sub-layer, and write here
//     of()     the batch was verified: the residuals of one of its rows
//
// One request's rows at a time. Threads: the actor's loop; the job of the batch writes to the rows
// that keep() has chosen.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/protocol/request_state.hpp"
#include "model/rows.hpp"

namespace paceline {

class ResidualStack {
public:
    /// Of all rows: sub-layers x dim.
    explicit ResidualStack(std::size_t row_floats) : row_floats_{row_floats} {}

    void clear() { state_.reset(); }
    void keep(std::shared_ptr<RequestState> state, std::span<Row> rows) {
        residuals_.resize(rows.size() * row_floats_);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i].first = 0;
            rows[i].stack = residuals_.data() + i * row_floats_;
        }
        state_ = std::move(state);
    }
    /// Nothing if rows of another request were kept, or none.
    [[nodiscard]] std::optional<std::span<const float>> of(const RequestState& state,
                                                           std::size_t row) const {
        if (state_.get() != &state) return std::nullopt;
        return std::span{residuals_}.subspan(row * row_floats_, row_floats_);
    }

private:
    std::size_t row_floats_;
    std::vector<float> residuals_;         // [rows, sub-layers, dim]
    std::shared_ptr<RequestState> state_;  // whose rows they are
};

}  // namespace paceline
