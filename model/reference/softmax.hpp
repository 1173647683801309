// Softmax in place, in plain loops. Pure.
#pragma once

#include <span>

namespace paceline::reference {

/// scores[i] becomes exp(scores[i]) / sum exp(scores). The maximum is subtracted first, so large
/// scores do not overflow. `scores` is [n], n > 0, without NaN and with at least one above -inf.
void softmax(std::span<double> scores);

}  // namespace paceline::reference
