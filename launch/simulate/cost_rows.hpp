// CostRows: times rows going through the first layers of a model, and heads; the instrument of
// `simulate --measure-costs`.
//
// The rows are those of a verify batch: after a context that is in the KV cache, at positions that
// follow each other. Their slots are written again and again. Owns buffers; borrows the backend,
// which holds all layers. One thread.
#pragma once

#include <vector>

#include "ipc/base/ids.hpp"
#include "model/backend.hpp"

namespace paceline {

class CostRows {
public:
    explicit CostRows(Backend& backend);

    /// Seconds that `rows` rows after `context` tokens take through layers [0, layers).
    /// Preconditions: 1 <= rows; context + rows <= kv_slots(); 1 <= layers <= config().layers.
    double layers_once(int rows, int context, int layers);
    /// Seconds that a head takes on `rows` hidden states.
    double head_once(HeadId head, int rows);

    /// The median of `samples`, each the mean of as many calls as take `sample_seconds`.
    template <class Once>
    static double median_of(int samples, double sample_seconds, Once once);

private:
    void feed(Position begin, int count, int layers);

    Backend& backend_;
    int filled_ = 0;  // positions whose keys are in the cache, over all layers
    std::vector<KvSlot> slots_;
    std::vector<Row> rows_;
    std::vector<float> hidden_;
    std::vector<float> logits_;
};

[[nodiscard]] double median(std::vector<double> values);

template <class Once>
double CostRows::median_of(int samples, double sample_seconds, Once once) {
    (void)once();  // touches memory and fills caches
    std::vector<double> means;
    for (int i = 0; i < samples; ++i) {
        double sum = 0.0;
        int calls = 0;
        do {
            sum += once();
            ++calls;
        } while (sum < sample_seconds);
        means.push_back(sum / calls);
    }
    return median(std::move(means));
}

}  // namespace paceline
