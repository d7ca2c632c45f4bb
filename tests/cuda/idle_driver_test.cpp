// On a device that is not there: what a call asks of the driver is answered at once, for as long as it is asked to be.
#include "cuda/idle_driver.hpp"

#include <gtest/gtest.h>

#include "cuda/absent_device.hpp"

namespace gnomon::cuda {
namespace {

TEST(IdleDriver, TakesTheDriversPlaceForAsLongAsItLives) {
  const AbsentDevice absent(Architecture::parse("sm_90a"));
  const Device device(0);
  const Driver* const before = &driver();
  {
    const IdleDriver idle(device);
    EXPECT_NE(&driver(), before);
    int place = -1, nothing = 0;
    EXPECT_EQ(driver().cuPointerGetAttribute(&place, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 1), CUDA_SUCCESS);
    EXPECT_EQ(place, 0);
    EXPECT_NO_THROW(device.require(&nothing, "input"));
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(driver().cuStreamIsCapturing(nullptr, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(driver().cuGraphLaunch(nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuMemAlloc, before->cuMemAlloc);  // the rest is the driver's own
  }
  EXPECT_EQ(&driver(), before);
}

}  // namespace
}  // namespace gnomon::cuda
