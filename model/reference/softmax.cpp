#include "model/reference/softmax.hpp"

#include <algorithm>
#include <cmath>

#include "ipc/base/check.hpp"

namespace paceline::reference {

void softmax(std::span<double> scores) {
    PACE_CHECK(!scores.empty(), "softmax of nothing");
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) {
        score = std::exp(score - largest);
        sum += score;
    }
    for (double& score : scores) score /= sum;
}

}  // namespace paceline::reference
