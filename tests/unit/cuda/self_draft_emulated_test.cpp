// Kangaroo on the CUDA backend, on the emulated device (adapter_suite.hpp): hidden states in device
// memory, and the target's tokens drawn with the layers after the exit.
#include "tests/unit/actors/self_draft/adapter_suite.hpp"
#include "tests/unit/cuda/cuda_traits.hpp"

namespace paceline::testing {
namespace {

TEST_CASE_TEMPLATE_INVOKE(KangarooOneRequest, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(KangarooRequests, CudaTraits);

}  // namespace
}  // namespace paceline::testing
