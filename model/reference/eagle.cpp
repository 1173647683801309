#include "model/reference/eagle.hpp"

#include <algorithm>
#include <cstddef>

#include "ipc/base/check.hpp"
#include "model/reference/matmul.hpp"

namespace paceline::reference {

std::vector<float> eagle_outputs(ReferenceBackend& layer,
                                 const EagleSpec& spec,
                                 std::span<const TokenId> tokens,
                                 std::span<const std::vector<float>> states) {
    const auto dim = static_cast<std::size_t>(layer.config().dim);
    std::vector<KvSlot> slots;
    for (std::size_t p = 0; p < tokens.size(); ++p) slots.push_back(static_cast<KvSlot>(p));
    std::vector<float> outputs;
    std::vector<float> feature(dim, 0.0F);  // of the position before
    for (std::size_t p = 0; p < tokens.size(); ++p) {
        Row row{.token = tokens[p],
                .position = static_cast<Position>(p),
                .slot = slots[p],
                .prefix_slots = slots.data(),
                .prefix_count = static_cast<std::int32_t>(p) + 1};
        std::vector<float> input(2 * dim);
        PACE_CHECK(
            layer.run_layers({&row, 1}, std::span{input}.first(dim), nullptr) == RunOutcome::Done,
            "an embedding");
        std::copy(feature.begin(), feature.end(), input.begin() + static_cast<std::ptrdiff_t>(dim));
        std::vector<float> state(dim);
        matmul(spec.fuse, input, {}, state);
        row.last = 2 * layer.last_layer();
        row.given = true;
        PACE_CHECK(layer.run_layers({&row, 1}, state, nullptr) == RunOutcome::Done, "a layer");
        outputs.insert(outputs.end(), state.begin(), state.end());
        const bool known = p < states.size() && !states[p].empty();
        if (!known) {
            feature = state;
        } else if (spec.join.empty()) {
            feature = states[p];
        } else {
            matmul(spec.join, states[p], {}, feature);
        }
    }
    return outputs;
}

}  // namespace paceline::reference
