"""`milepost graph SAGA`."""
