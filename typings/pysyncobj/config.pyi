class FAIL_REASON:
    SUCCESS: int
    QUEUE_FULL: int
    MISSING_LEADER: int
    DISCARDED: int
    NOT_LEADER: int
    LEADER_CHANGED: int
    REQUEST_DENIED: int
    UNKNOWN_OUTCOME: int

class SERIALIZER_STATE:
    NOT_SERIALIZING: int

class SyncObjConf:
    def __init__(self, **kwargs: object) -> None: ...
