// Kangaroo on the reference backend and on the CPU backend (adapter_suite.hpp).
#include "tests/unit/actors/self_draft/adapter_suite.hpp"
#include "tests/unit/cpu/cpu_traits.hpp"
#include "tests/unit/reference/reference_traits.hpp"

namespace paceline::testing {
namespace {

TEST_CASE_TEMPLATE_INVOKE(KangarooOneRequest, ReferenceTraits, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(KangarooRequests, ReferenceTraits, CpuTraits);

}  // namespace
}  // namespace paceline::testing
