// The defaults of sampling in a generation_config.json.
#pragma once

#include "model/weights/huggingface/json_keys.hpp"
#include "model/weights/model_file.hpp"

namespace paceline::huggingface {

/// What generate() of transformers would draw with: without do_sample it is greedy, with it absent
/// keys mean temperature 1 and top_k 50. Values that are no numbers fail `keys`.
[[nodiscard]] SamplingDefaults read_sampling_defaults(JsonKeys& keys);

}  // namespace paceline::huggingface
