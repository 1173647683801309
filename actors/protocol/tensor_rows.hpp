// What lies in a tensor slot, as a backend takes it: hidden states, or keys and values of one
// token.
#pragma once

#include "ipc/transport/tensor_memory.hpp"
#include "model/placed_span.hpp"

namespace paceline {

[[nodiscard]] inline HiddenRows hidden_rows(const TensorMemory& tensor) {
    return {reinterpret_cast<float*>(tensor.data), tensor.bytes / sizeof(float), tensor.place};
}

[[nodiscard]] inline KvBytes kv_bytes(const TensorMemory& tensor) {
    return {tensor.data, tensor.bytes, tensor.place};
}

}  // namespace paceline
