#include "actors/decoding/retained_states.hpp"

#include "ipc/base/faults.hpp"

namespace paceline {

RetainedStates::RetainedStates(Backend& backend, std::int32_t slots)
    : backend_{backend}, slots_{slots} {
    (void)backend_.rows_of(states_, static_cast<std::size_t>(slots));
}

bool RetainedStates::takes(const Row& row, const RowSource& input, bool stale) const {
    if (planted(PlantedBug::UnrunStatesKept)) return has(row.slot);
    return (row.first < row.last || !input.is_gap()) && !stale && has(row.slot);
}

/// Rows of neighbouring slots, as those of a prompt are, are copied together.
void RetainedStates::keep(std::span<const Row> rows,
                          std::span<const RowSource> inputs,
                          ConstHiddenRows hidden,
                          const CancelToken::RowWatch& watch) {
    const auto taken = [&](std::size_t i) { return takes(rows[i], inputs[i], watch.stale(i)); };
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    std::size_t next = 0;
    for (std::size_t begin = 0; begin < rows.size(); begin = next) {
        next = begin + 1;
        if (!taken(begin)) continue;
        while (next < rows.size() && rows[next].slot == rows[next - 1].slot + 1 && taken(next)) {
            ++next;
        }
        const auto slot = static_cast<std::size_t>(rows[begin].slot);
        const std::size_t floats = (next - begin) * dim;
        backend_.copy(hidden.subspan(begin * dim, floats),
                      states_.rows.subspan(slot * dim, floats));
    }
}

}  // namespace paceline
