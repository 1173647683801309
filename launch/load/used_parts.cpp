#include "launch/load/used_parts.hpp"

#include <algorithm>

namespace paceline {

ExitHead resolved_head(ExitHead wanted, bool has_adapter, bool has_head) {
    if (wanted != ExitHead::Adapter && wanted != ExitHead::Trained) return wanted;
    if (wanted == ExitHead::Adapter && has_adapter) return ExitHead::Adapter;
    return has_head ? ExitHead::Trained : ExitHead::LogitLens;
}

ExitHead UsedParts::head_behind(int layer, ExitHead wanted) const {
    const auto in = [layer](const std::vector<int>& layers) {
        return std::find(layers.begin(), layers.end(), layer) != layers.end();
    };
    return resolved_head(wanted, in(adapter_layers), in(head_layers));
}

}  // namespace paceline
