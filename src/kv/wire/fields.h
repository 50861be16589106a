/* Methods and field numbers of etcd's API, version 3, as far as they are used here. Source: etcd's rpc.proto and
 * kv.proto. */
#ifndef MR_KV_WIRE_FIELDS_H
#define MR_KV_WIRE_FIELDS_H

#define ETCD_RANGE        "/etcdserverpb.KV/Range"
#define ETCD_PUT          "/etcdserverpb.KV/Put"
#define ETCD_DELETE       "/etcdserverpb.KV/DeleteRange"
#define ETCD_TXN          "/etcdserverpb.KV/Txn"
#define ETCD_COMPACT      "/etcdserverpb.KV/Compact"
#define ETCD_WATCH        "/etcdserverpb.Watch/Watch"
#define ETCD_GRANT        "/etcdserverpb.Lease/LeaseGrant"
#define ETCD_REVOKE       "/etcdserverpb.Lease/LeaseRevoke"
#define ETCD_KEEP         "/etcdserverpb.Lease/LeaseKeepAlive"
#define ETCD_AUTHENTICATE "/etcdserverpb.Auth/Authenticate"
#define ETCD_STATUS       "/etcdserverpb.Maintenance/Status"

enum { /* KeyValue */
       KV_KEY = 1,
       KV_CREATE_REVISION = 2,
       KV_MOD_REVISION = 3,
       KV_VERSION = 4,
       KV_VALUE = 5,
       KV_LEASE = 6,
};
enum { /* Event */
       EVENT_TYPE = 1,
       EVENT_KV = 2,
       EVENT_TYPE_DELETE = 1,
};
enum { /* ResponseHeader, which is field 1 of each response */
       RESPONSE_HEADER = 1,
       HEADER_CLUSTER = 1,
       HEADER_MEMBER = 2,
       HEADER_REVISION = 3,
       HEADER_TERM = 4,
};
enum { /* RangeRequest; the first two are also those of DeleteRangeRequest and WatchCreateRequest */
       RANGE_KEY = 1,
       RANGE_END = 2,
       RANGE_LIMIT = 3,
       RANGE_REVISION = 4,
       RANGE_SORT_ORDER = 5,
       RANGE_SORT_TARGET = 6,
       RANGE_SERIALIZABLE = 7,
       RANGE_KEYS_ONLY = 8,
       RANGE_COUNT_ONLY = 9,
};
enum { /* RangeResponse */
       RANGED_KVS = 2,
       RANGED_MORE = 3,
       RANGED_COUNT = 4,
};
enum { /* PutRequest */
       PUT_KEY = 1,
       PUT_VALUE = 2,
       PUT_LEASE = 3,
};
enum { /* DeleteRangeResponse */
       DELETED_COUNT = 2,
};
enum { /* Compare */
       COMPARE_RESULT = 1,
       COMPARE_TARGET = 2,
       COMPARE_KEY = 3,
       COMPARE_MOD_REVISION = 6,
       COMPARE_TARGET_MOD = 2,
};
enum { /* RequestOp and ResponseOp */
       OP_RANGE = 1,
       OP_PUT = 2,
       OP_DELETE = 3,
};
enum { /* TxnRequest */
       TXN_COMPARE = 1,
       TXN_SUCCESS = 2,
       TXN_FAILURE = 3,
};
enum { /* TxnResponse */
       TXNED_SUCCEEDED = 2,
       TXNED_RESPONSES = 3,
};
enum { /* CompactionRequest */
       COMPACT_REVISION = 1,
};
enum { /* WatchRequest */
       WATCH_CREATE = 1,
       WATCH_CANCEL = 2,
       WATCH_PROGRESS = 3,
};
enum { /* WatchCreateRequest, after RANGE_KEY and RANGE_END */
       CREATE_START = 3,
       CREATE_PROGRESS = 4,
};
enum { /* WatchResponse */
       WATCHED_ID = 2,
       WATCHED_CREATED = 3,
       WATCHED_CANCELED = 4,
       WATCHED_COMPACT_REVISION = 5,
       WATCHED_CANCEL_REASON = 6,
       WATCHED_EVENTS = 11,
};
enum { /* LeaseGrantRequest */
       GRANT_TTL = 1,
       GRANT_ID = 2,
};
enum { /* LeaseRevokeRequest and LeaseKeepAliveRequest */
       LEASE_ID = 1,
};
enum { /* LeaseGrantResponse and LeaseKeepAliveResponse */
       LEASED_ID = 2,
       LEASED_TTL = 3,
};
enum { /* AuthenticateRequest and its response */
       AUTH_NAME = 1,
       AUTH_PASSWORD = 2,
       AUTHED_TOKEN = 2,
};
enum { /* StatusResponse */
       STATUS_VERSION = 2,
       STATUS_LEADER = 4,
};

#endif
