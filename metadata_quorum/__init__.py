"""The Raft quorum that holds the cluster's metadata in place of ZooKeeper. Not built yet."""
