#include "actors/segment/layer_job.hpp"

#include <algorithm>

namespace paceline {

std::size_t LayerJob::dim() const {
    return static_cast<std::size_t>(backend.config().dim);
}

void LayerJob::fit_memory() {
    out = out.first(inputs.size() * dim());
    hidden = out;
}

bool LayerJob::reads_device() const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [](const RowSource& source) { return source.of.on_device(); });
}

void LayerJob::scatter_outputs() {
    if (retained != nullptr) retained->keep(rows, inputs, hidden, watermarks);
    if (hidden.data() != out.data()) backend.copy(hidden, out);
}

}  // namespace paceline
