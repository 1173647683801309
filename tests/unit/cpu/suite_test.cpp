// The suite of all backends (tests/unit/backend) for the CPU backend.
#include "tests/unit/backend/adapter_suite.hpp"
#include "tests/unit/backend/cancel_suite.hpp"
#include "tests/unit/backend/golden_suite.hpp"
#include "tests/unit/backend/head_suite.hpp"
#include "tests/unit/backend/kv_suite.hpp"
#include "tests/unit/backend/lora_suite.hpp"
#include "tests/unit/backend/place_suite.hpp"
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/backend/sublayer_suite.hpp"
#include "tests/unit/cpu/cpu_traits.hpp"

namespace paceline::testing {
namespace {

TEST_CASE_TEMPLATE_INVOKE(RowsInAnyWay, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(ChainedSegments, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(TreeNodes, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoRequests, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(EqualityClass, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(SublayersAgree, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(Stacks, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(NeighboursSkip, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MixedBatch, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AlwaysSkipped, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoCalls, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(NothingToRun, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(StackOfEmbedding, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(GivenRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MaskedStacks, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(GoldenLogits, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(NearFloat, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(NarrowCaches, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(HeadsAgree, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(ShortLists, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsGiven, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsRefused, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(AdapterAgrees, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterKeys, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterUnseenRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterShortList, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterCancelled, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdaptersRefused, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(CopiedSlots, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(LayersInPlace, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsInPlace, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterInPlace, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(GatheredRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(CopiedRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(RowsInOrder, CpuTraits);

TEST_CASE_TEMPLATE_INVOKE(MergedTarget, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedGolden, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedKinds, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedDtypes, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedElsewhere, CpuTraits);

TEST_CASE("a merged matrix of a file in float16 is rounded to float16, not to bfloat16") {
    const MergedPair pair{"llama-untied-f16", {.half = true}};
    const std::vector<float> want = logits_with<CpuTraits>(pair.reference, Dtype::F32);
    CHECK(worst_error(logits_with<CpuTraits>(pair.merged, Dtype::Auto), want) < 5e-3);
    CHECK(worst_error(logits_with<CpuTraits>(pair.merged, Dtype::BF16), want) > 1e-2);
}

TEST_CASE_TEMPLATE_INVOKE(CancelledBefore, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(CancelledByAnother, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleRows, CpuTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleAndCancelled, CpuTraits);

}  // namespace
}  // namespace paceline::testing
