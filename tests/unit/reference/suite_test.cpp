// The suite of all backends (tests/unit/backend) for the reference backend, but for what compares a
// backend with it, and what it does not do: dtypes, refusals, copies of slots, keys that were never
// written.
#include "tests/unit/backend/adapter_suite.hpp"
#include "tests/unit/backend/cancel_suite.hpp"
#include "tests/unit/backend/golden_suite.hpp"
#include "tests/unit/backend/head_suite.hpp"
#include "tests/unit/backend/lora_suite.hpp"
#include "tests/unit/backend/row_suite.hpp"
#include "tests/unit/backend/sublayer_suite.hpp"
#include "tests/unit/reference/reference_traits.hpp"

namespace paceline::testing {
namespace {

TEST_CASE_TEMPLATE_INVOKE(RowsInAnyWay, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(ChainedSegments, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(TreeNodes, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoRequests, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(EqualityClass, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(Stacks, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(NeighboursSkip, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(MixedBatch, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(TwoCalls, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(NothingToRun, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(StackOfEmbedding, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(GivenRows, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(MaskedStacks, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(GoldenLogits, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(NarrowCaches, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(HeadRows, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(ShortLists, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(HeadsGiven, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(AdapterRows, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterKeys, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterShortList, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(AdapterCancelled, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(MergedTarget, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedGolden, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedKinds, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(MergedElsewhere, ReferenceTraits);

TEST_CASE_TEMPLATE_INVOKE(CancelledBefore, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(CancelledByAnother, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleRows, ReferenceTraits);
TEST_CASE_TEMPLATE_INVOKE(StaleAndCancelled, ReferenceTraits);

}  // namespace
}  // namespace paceline::testing
