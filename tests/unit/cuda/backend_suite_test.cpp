// The suite of all backends (tests/unit/backend) for the CUDA backend. Calls that another thread
// cancels are in backend_cut_test.cpp, where a batch lasts long enough on any device.
#include "tests/unit/backend/adapter_suite.hpp"
#include "tests/unit/backend/cancel_suite.hpp"
#include "tests/unit/backend/golden_suite.hpp"
#include "tests/unit/backend/head_suite.hpp"
#include "tests/unit/backend/kv_suite.hpp"
#include "tests/unit/backend/lora_suite.hpp"
#include "tests/unit/backend/place_suite.hpp"
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/backend/sublayer_suite.hpp"
#include "tests/unit/cuda/cuda_traits.hpp"

namespace paceline::testing {
namespace {

TEST_CASE_TEMPLATE_INVOKE(RowsInAnyWay, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(ChainedSegments, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(TreeNodes, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoRequests, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(EqualityClass, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(SublayersAgree, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(Stacks, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(NeighboursSkip, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MixedBatch, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AlwaysSkipped, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoCalls, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(NothingToRun, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(StackOfEmbedding, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(GivenRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MaskedStacks, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(GoldenLogits, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(NearFloat, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(NarrowCaches, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(HeadsAgree, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(ShortLists, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsGiven, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsRefused, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(AdapterAgrees, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterKeys, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterUnseenRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterShortList, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterCancelled, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdaptersRefused, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(CopiedSlots, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(LayersInPlace, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsInPlace, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterInPlace, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(GatheredRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(CopiedRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(RowsInOrder, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(MergedTarget, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedGolden, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedKinds, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedDtypes, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedElsewhere, CudaTraits);

TEST_CASE_TEMPLATE_INVOKE(CancelledBefore, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleRows, CudaTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleAndCancelled, CudaTraits);

}  // namespace
}  // namespace paceline::testing
